package takeapi

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// fullTake has every field of a TakeRequest.
func fullTake() *ratelimitv1.TakeRequest {
	long := strings.Repeat("x", 300)
	return &ratelimitv1.TakeRequest{
		Domain: "api",
		Descriptors: []*ratelimitv1.Descriptor{
			{},
			{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "ä"}, {}, {Key: long}}, Cost: proto.Uint64(0)},
			{Cost: proto.Uint64(math.MaxUint64), Numbers: &ratelimitv1.Numbers{}},
			{Entries: []*ratelimitv1.Entry{{Value: long}}, Numbers: &ratelimitv1.Numbers{
				Requests: math.MaxUint64, Burst: math.MaxUint64, Period: &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MinInt32},
			}},
			{Numbers: &ratelimitv1.Numbers{Requests: 7, Period: durationpb.New(-1500 * time.Millisecond)}},
		},
		Id:           "ä-" + long,
		SettleWithin: &durationpb.Duration{Seconds: math.MinInt64, Nanos: math.MaxInt32},
		Lease:        math.MaxUint64,
	}
}

// takeSeeds are messages that a careless reader misreads.
func takeSeeds(t testing.TB) [][]byte {
	full := decidetest.Marshal(t, fullTake())
	return [][]byte{
		full, full[:len(full)-1], append(full[:len(full):len(full)], full...), {0x08}, {0x00, 0x00},
		protowire.AppendFixed64(protowire.AppendTag(full[:len(full):len(full)], 1, protowire.Fixed64Type), 7),
		protowire.AppendGroup(protowire.AppendTag(nil, 9, protowire.StartGroupType), 9, full),
		protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"),
		// Numbers and their period in several parts.
		[]byte("\x12\x14\x1a\x08\x08\x05\x12\x02\x08\x07\x18\x09\x1a\x08\x08\x06\x12\x04\x10\x80\xc8\x4a"),
		[]byte("\x12\x10\x1a\x0e\x12\x02\x08\x05\x12\x02\x10\x01\x12\x04\x08\x07\x20\x01"),
		// Requests, nanos and a burst over 32 bits.
		[]byte("\x12\x1a\x1a\x18\x08\xff\xff\xff\xff\x7f\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\xff\xff\xff\xff\x7f"),
		// A cost of another wire type does not count; the last of two does.
		[]byte("\x12\x09\x12\x01\x05\x10\x03\x10\x04\x15\x01"),
		[]byte("\x12\x0b\x10\x03\x10\x04\x15\x01\x00\x00\x00\x12\x00"),
	}
}

// asRead returns a call as protobuf's message.
func (c takeCall) asRead() *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: c.Domain, Id: c.ID, Lease: c.Lease}
	if c.HasSettleWithin {
		r.SettleWithin = durationpb.New(c.SettleWithin)
	}
	for i := range c.Descriptors {
		from, d := &c.Descriptors[i], new(ratelimitv1.Descriptor)
		if from.HasHitsAddend {
			d.Cost = proto.Uint64(from.HitsAddend)
		}
		if o := from.Own; o.Set {
			d.Numbers = &ratelimitv1.Numbers{Requests: o.Requests, Burst: o.Burst, Period: durationpb.New(o.Period)}
			if o.Invalid != nil {
				d.Numbers.Period = invalidPeriod
			}
		}
		for _, e := range from.Entries {
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// invalidPeriod stands for every invalid period.
var invalidPeriod = &durationpb.Duration{Nanos: math.MinInt32}

// settled returns the value of a period: no more than some decades.
func settled(d *durationpb.Duration) *durationpb.Duration {
	seconds, nanos := d.GetSeconds(), int64(d.GetNanos())
	if nanos/1e9 != 0 || seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return invalidPeriod
	}
	const decades = 1 << 31
	return &durationpb.Duration{Seconds: min(max(seconds, -decades), decades), Nanos: int32(nanos)}
}

// known reads a message with protobuf. It drops unknown fields and settles periods; a
// missing period becomes an empty one.
func known(in []byte, m proto.Message, takes func() []*ratelimitv1.TakeRequest) error {
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(in, m); err != nil {
		return err
	}
	for _, take := range takes() {
		if d := take.GetSettleWithin(); d != nil {
			const decades = 1 << 31
			take.SettleWithin = durationpb.New(time.Duration(min(max(d.Seconds, -decades), decades))*time.Second + time.Duration(d.Nanos))
		}
		for _, d := range take.GetDescriptors() {
			if n := d.GetNumbers(); n != nil {
				n.Period = settled(n.Period)
			}
		}
	}
	return nil
}

// FuzzTakeBytes compares the reader of a TakeRequest with protobuf's: both read the
// same and refuse the same.
func FuzzTakeBytes(f *testing.F) {
	for _, seed := range takeSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		want := new(ratelimitv1.TakeRequest)
		refused := known(in, want, func() []*ratelimitv1.TakeRequest { return []*ratelimitv1.TakeRequest{want} })
		c := takeCall{decidetest.Unbounded().NewCall()}
		err := c.unmarshalTake(string(in))
		if (refused == nil) != (err == nil) {
			t.Fatalf("protobuf says %v and reads %v; here: %v", refused, want, err)
		}
		if err != nil {
			return
		}
		if got := c.asRead(); !proto.Equal(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	})
}

// numberless returns a TakeManyRequest as the stream's message with the same
// takes.
func numberless(r *ratelimitv1.TakeManyRequest) *ratelimitv1.TakeStreamRequest {
	s := new(ratelimitv1.TakeStreamRequest)
	for _, take := range r.GetTakes() {
		s.Takes = append(s.Takes, &ratelimitv1.NumberedTake{Take: take})
	}
	return s
}

// FuzzTakesBytes compares the reader of several requests with protobuf's. A
// request that cannot be read fails alone.
func FuzzTakesBytes(f *testing.F) {
	full := fullTake()
	stream := decidetest.Marshal(f, &ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{
		{Number: 1, Take: full, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {}, {Number: math.MaxUint64}, {Number: 7, Take: &ratelimitv1.TakeRequest{}}, {Settle: new(ratelimitv1.SettleRequest)},
		{Take: full, Settle: &ratelimitv1.SettleRequest{Domain: full.GetDomain(), Id: "one", Descriptors: full.GetDescriptors()}},
	}})
	many := decidetest.Marshal(f, &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{full, {}, full}})
	seeds := append(takeSeeds(f), stream, many, append(stream[:len(stream):len(stream)], stream...), many[:len(many)-3])
	// A take and a number in several parts.
	var parts []byte
	for i, part := range []string{"\x0a\x03api", "\x12\x00", "\x12\x05\x0a\x03\x0a\x01k"} {
		parts = protowire.AppendString(protowire.AppendTag(parts, 2, protowire.BytesType), part)
		parts = protowire.AppendVarint(protowire.AppendTag(parts, 1, protowire.VarintType), uint64(i))
	}
	seeds = append(seeds, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), parts))
	// The second of three cannot be read.
	seeds = append(seeds, []byte("\x0a\x02\x08\x01\x0a\x03\x12\x01\x0a\x0a\x02\x08\x03"))
	for _, seed := range seeds {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	s := decide.New(decide.Options{Bounds: decide.Bounds{Descriptors: math.MaxInt, Entries: math.MaxInt}})
	f.Fuzz(func(t *testing.T, in []byte, isStream bool) {
		want := new(ratelimitv1.TakeStreamRequest)
		takesOf := func() (of []*ratelimitv1.TakeRequest) {
			for _, n := range want.GetTakes() {
				of = append(of, n.GetTake())
				if r := n.GetSettle(); r != nil { // as a take with the same fields
					n.Take = &ratelimitv1.TakeRequest{Domain: r.GetDomain(), Id: r.GetId(), Descriptors: r.GetDescriptors()}
					of = append(of, n.Take)
				}
			}
			return of
		}
		var refused error
		if isStream {
			refused = known(in, want, takesOf)
		} else {
			read := new(ratelimitv1.TakeManyRequest)
			refused = known(in, read, read.GetTakes)
			want = numberless(read)
		}
		got := &takes{api: &API{Endpoint: &endpoint.Endpoint{Decider: s, Bounds: decide.Bounds{Takes: math.MaxInt}}}}
		var err error
		if isStream {
			f := wire.Fields[string]{Rest: string(in)}
			for f.Next() {
				if f.Is(1, wire.Bytes) {
					it := new(item)
					got.api.readItem(it, f.Bytes, true, 0)
					got.items = append(got.items, it)
				}
			}
			err = f.Err
		} else {
			err = got.ReadWire(string(in))
		}
		for _, it := range got.items {
			if err == nil {
				err = it.err
			}
		}
		switch {
		case refused != nil:
			return
		case err != nil:
			t.Fatalf("protobuf reads %v; here: %v", want, err)
		case len(got.items) != len(want.GetTakes()):
			t.Fatalf("%d requests, want %v", len(got.items), want)
		}
		for i, n := range want.GetTakes() {
			take := n.GetTake()
			if take == nil {
				take = new(ratelimitv1.TakeRequest)
			}
			if it := got.items[i]; it.number != n.GetNumber() || it.traceparent != n.GetTraceparent() || it.isSettlement != (n.GetSettle() != nil) || !proto.Equal(it.call.asRead(), take) {
				t.Fatalf("request %d: number %d, %v; want %v", i, it.number, it.call.asRead(), n)
			}
		}
		got.Release()
	})
}

// Parts beyond the bounds are counted and not kept.
func TestTakeReadingIsBounded(t *testing.T) {
	decidetest.ReadingIsBounded(t, func(c *decide.Call, in string) error { return takeCall{c}.unmarshalTake(in) })
}
