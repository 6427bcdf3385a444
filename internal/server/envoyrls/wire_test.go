package envoyrls

import (
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

// FuzzRequestBytes compares the reader of requests with protobuf's: both read
// the same.
func FuzzRequestBytes(f *testing.F) {
	long := strings.Repeat("x", 300)
	full := decidetest.Marshal(f, &rlsv3.RateLimitRequest{
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
	// A limit and its multiplier in several parts; a multiplier and a unit over
	// 32 bits.
	f.Add([]byte("\x12\x0e\x12\x06\x08\x01\x1a\x02\x08\x07\x12\x04\x10\x02\x1a\x00"))
	f.Add([]byte("\x12\x14\x12\x12\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x05\x08\xff\xff\xff\x7f"))
	f.Add([]byte("\x12\x0c\x12\x0a\x1a\x08\x08\xff\xff\xff\xff\xff\x7f\x00"))
	f.Add([]byte{0x08})
	f.Add([]byte{0x00, 0x00})
	f.Add([]byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, in []byte) {
		var want rlsv3.RateLimitRequest
		refused := proto.Unmarshal(in, &want)
		c := &envoyCall{Call: decidetest.Unbounded().NewCall()}
		err := c.ReadWire(string(in))
		if refused != nil {
			return
		}
		if err != nil {
			t.Fatalf("protobuf reads %v; here: %v", &want, err)
		}
		if c.Domain != want.GetDomain() || c.HitsAddend != want.GetHitsAddend() || len(c.Descriptors) != len(want.GetDescriptors()) {
			t.Fatalf("%q, %d, %d descriptors; want %v", c.Domain, c.HitsAddend, len(c.Descriptors), &want)
		}
		for i, d := range want.GetDescriptors() {
			got := c.Descriptors[i]
			want := decide.Descriptor{HitsAddend: d.GetHitsAddend().GetValue(), HasHitsAddend: d.GetHitsAddend() != nil, Refund: d.GetIsNegativeHits()}
			if l := d.GetLimit(); l != nil {
				want.Own = decide.Override{
					Set: true, Requests: uint64(l.GetRequestsPerUnit()), Names: &limitNames,
					Spelling: decide.Spelling{Unit: int32(l.GetUnit()), Multiplier: l.GetUnitMultiplier().GetValue(), HasMultiplier: l.GetUnitMultiplier() != nil},
				}
				// Other tests check the periods.
				want.Own.Period, want.Own.Invalid = got.Own.Period, got.Own.Invalid
			}
			if got.Own != want.Own || got.HitsAddend != want.HitsAddend || got.HasHitsAddend != want.HasHitsAddend || got.Refund != want.Refund ||
				len(got.Entries) != len(d.GetEntries()) {
				t.Fatalf("descriptor %d: %+v, want %v", i, got, d)
			}
			for j, e := range d.GetEntries() {
				if got.Entries[j].Key != e.GetKey() || got.Entries[j].Value != e.GetValue() {
					t.Fatalf("descriptor %d, entry %d: %+v, want %v", i, j, got.Entries[j], e)
				}
			}
		}
	})
}

// Parts beyond the bounds are counted and not kept.
func TestReadingIsBounded(t *testing.T) {
	decidetest.ReadingIsBounded(t, func(c *decide.Call, in string) error { return (&envoyCall{Call: c}).ReadWire(in) })
}
