package server

import (
	"math"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	out, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzRequestBytes holds the reader of requests against protobuf's: what that
// reads is read alike.
func FuzzRequestBytes(f *testing.F) {
	long := strings.Repeat("x", 300)
	full := marshal(f, &rlsv3.RateLimitRequest{
		Domain:     "api",
		HitsAddend: 1<<32 - 1,
		Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{},
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ä"}, {}, {Key: long}}},
			{Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{}},
			{Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 1<<32 - 1, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(90),
			}},
			{HitsAddend: wrapperspb.UInt64(0)},
			{HitsAddend: wrapperspb.UInt64(1<<64 - 1), IsNegativeHits: true},
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Value: long}}, IsNegativeHits: true},
		},
	})
	f.Add(full)
	f.Add(full[:len(full)-1])
	f.Add(append(full, full...))
	f.Add(protowire.AppendFixed64(protowire.AppendTag(full, 1, protowire.Fixed64Type), 7))
	f.Add(protowire.AppendGroup(protowire.AppendTag(nil, 9, protowire.StartGroupType), 9, full))
	f.Add(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"))
	// A limit, and its multiplier, in several parts; a multiplier and a unit
	// over 32 bits.
	f.Add([]byte("\x12\x0e\x12\x06\x08\x01\x1a\x02\x08\x07\x12\x04\x10\x02\x1a\x00"))
	f.Add([]byte("\x12\x14\x12\x12\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x05\x08\xff\xff\xff\x7f"))
	f.Add([]byte("\x12\x0c\x12\x0a\x1a\x08\x08\xff\xff\xff\xff\xff\x7f\x00"))
	f.Add([]byte{0x08})
	f.Add([]byte{0x00, 0x00})
	f.Add([]byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, in []byte) {
		var want rlsv3.RateLimitRequest
		refused := proto.Unmarshal(in, &want)
		c := unbounded().newCall()
		err := c.unmarshal(string(in))
		if refused != nil {
			return
		}
		if err != nil {
			t.Fatalf("protobuf reads %v; here: %v", &want, err)
		}
		if c.domain != want.GetDomain() || c.hitsAddend != want.GetHitsAddend() || len(c.descriptors) != len(want.GetDescriptors()) {
			t.Fatalf("%q, %d, %d descriptors; want %v", c.domain, c.hitsAddend, len(c.descriptors), &want)
		}
		for i, d := range want.GetDescriptors() {
			got := c.descriptors[i]
			want := descriptor{hits: d.GetHitsAddend().GetValue(), hasHits: d.GetHitsAddend() != nil, refund: d.GetIsNegativeHits()}
			if l := d.GetLimit(); l != nil {
				want.own = override{
					set: true, requests: l.GetRequestsPerUnit(), names: &limitNames,
					spelling: spelling{int32(l.GetUnit()), l.GetUnitMultiplier().GetValue(), l.GetUnitMultiplier() != nil},
				}
				// Tests of requests have what periods become.
				want.own.period, want.own.invalid = got.own.period, got.own.invalid
			}
			if got.own != want.own || got.hits != want.hits || got.hasHits != want.hasHits || got.refund != want.refund ||
				len(got.entries) != len(d.GetEntries()) {
				t.Fatalf("descriptor %d: %+v, want %v", i, got, d)
			}
			for j, e := range d.GetEntries() {
				if got.entries[j].Key != e.GetKey() || got.entries[j].Value != e.GetValue() {
					t.Fatalf("descriptor %d, entry %d: %+v, want %v", i, j, got.entries[j], e)
				}
			}
		}
	})
}

// What is not a message is refused, with no more of it read than there is.
func TestBrokenRequestBytes(t *testing.T) {
	for _, in := range []string{"\x08", "\x0a\x05api", "\x00\x00", "\x12\x02\x0a\x05", "\x0a\x01\xff", "\x0b", "\x0c", "\x0f\x01",
		"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x12\x03\x0a\x01\x0a"} {
		c := unbounded().newCall()
		if err := c.unmarshal(in); err == nil {
			t.Errorf("%q was read as %+v", in, c)
		}
		if err := proto.Unmarshal([]byte(in), new(rlsv3.RateLimitRequest)); err == nil {
			t.Errorf("protobuf reads %q", in)
		}
	}
}

// unbounded returns a decider whose calls are read whatever their size.
func unbounded() *decider {
	return newDecider(deciderOptions{bounds: Bounds{Descriptors: math.MaxInt, Entries: math.MaxInt}})
}

// What is beyond the bounds is counted and not kept, and what no message has is
// passed over without a copy of it.
func TestReadingIsBounded(t *testing.T) {
	const n = 200_000
	d := newDecider(deciderOptions{bounds: Bounds{Descriptors: 3, Entries: 2}})
	entries := "\x0a\x01x" + string(protowire.AppendString([]byte{0x12}, strings.Repeat("\x0a\x00", n)))
	for name, in := range map[string]string{
		"descriptors":    strings.Repeat("\x12\x00", n),
		"entries":        entries,
		"fixed32":        strings.Repeat("\x4d1234", n),
		"fixed64":        strings.Repeat("\x4912345678", n),
		"groups":         strings.Repeat("\x4b\x4c", n),
		"nested groups":  strings.Repeat("\x4b", n),
		"unknown fields": strings.Repeat("\xa2\x06\x00", n),
	} {
		for way, read := range map[string]func(*call, string) error{"Envoy's": (*call).unmarshal, "own": (*call).unmarshalTake} {
			allocated := testing.AllocsPerRun(1, func() {
				c := d.newCall()
				if err := read(c, in); (err != nil) != (name == "nested groups") {
					t.Errorf("%s, %s: %v", way, name, err)
				}
				if len(c.descriptors) > 3 || len(c.entries) > 2 {
					t.Errorf("%s, %s: %d descriptors, %d entries are kept", way, name, len(c.descriptors), len(c.entries))
				}
				more := c.moreDescriptors + len(c.descriptors)
				for _, d := range c.descriptors {
					more += d.moreEntries + len(d.entries)
				}
				if name == "descriptors" && more != n || name == "entries" && more != n+1 {
					t.Errorf("%s, %s: %d are counted", way, name, more)
				}
			})
			if allocated > 20 {
				t.Errorf("%s, %s: %v allocations", way, name, allocated)
			}
		}
	}
}
