package takeapi

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// timeOf returns a time to wait as in responses: unset for none, and for one without
// end.
func timeOf(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// wantMessage checks that out is what protobuf writes of want, in as many bytes.
func wantMessage[M proto.Message](t *testing.T, out []byte, want, got M) {
	t.Helper()
	wire, err := proto.Marshal(want)
	if err != nil {
		return // no limits file has a name that is not text
	}
	if err := proto.Unmarshal(out, got); err != nil || !proto.Equal(got, want) || len(out) != len(wire) {
		t.Fatalf("%v, %d bytes:\n got %v\nwant %v, %d bytes", err, len(out), got, want, len(wire))
	}
}

func fuzzedLimit(t *testing.T, name string, a bucket.Algorithm) *bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(bucket.Spec{Name: name, Algorithm: a, Requests: 10, Period: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// FuzzTakeResponse compares the writer of responses with protobuf's messages:
// any decisions, also about a descriptor's own limit, have the same content in
// as many bytes.
func FuzzTakeResponse(f *testing.F) {
	f.Add(uint8(1), "n", int64(5), int64(0), int64(1), int64(0), int64(7), int64(1), uint32(0), false, false)
	f.Add(uint8(2), "n", int64(3), int64(0), int64(1), int64(0), int64(0), int64(1), uint32(0), false, false) // forgotten
	f.Add(uint8(4), "", int64(0), int64(-1), int64(1e15), int64(0), int64(0), int64(9), uint32(5), true, false)
	f.Add(uint8(3), "a name", int64(1<<52), int64(366*24*time.Hour), int64(999), int64(1e9), int64(1<<53), int64(0), uint32(1<<31), true, true)
	f.Fuzz(func(t *testing.T, algorithm uint8, name string, remaining, retry, reset, wait, at, cost int64, share uint32, degraded, shadow bool) {
		l := fuzzedLimit(t, name, bucket.Algorithm(1+algorithm%6))
		remaining, reset, wait = max(0, remaining)%(bucket.MaxRequests+1), max(0, reset), max(0, wait)
		d := bucket.Decision{
			Remaining: remaining, RetryAfter: max(bucket.Never, time.Duration(retry)),
			ResetAfter: time.Duration(reset), Wait: time.Duration(wait), At: at % (1 << 53), Degraded: degraded, Share: share,
		}
		other := bucket.Decision{Remaining: 3, At: 5}
		c := takeCall{decide.New(decide.Options{}).NewCall()}
		c.Hits = []bucket.Hit{{Limit: l, Cost: cost, Key: []byte("k")}, {Limit: l, Cost: 1, Key: []byte(name)}}
		c.Outcomes = []decide.Outcome{
			{Limits: []*bucket.Limit{l}, Hits: c.Hits[:1], Decisions: []bucket.Decision{d}, Shadow: shadow},
			{Limits: []*bucket.Limit{l}, Hits: c.Hits[1:], First: 1, Decisions: []bucket.Decision{other}, Own: &decide.Override{Set: true}},
		}
		if shadow {
			c.Outcomes[0].Role = bucket.Aside
		}
		c.Denied = !d.Allowed() && !shadow
		limit := func(index uint32, name string, d bucket.Decision) *ratelimitv1.Limit {
			return &ratelimitv1.Limit{
				DescriptorIndex: index, Name: name, Algorithm: ratelimitv1.Algorithm(l.Algorithm),
				Requests: 10, Period: durationpb.New(l.Period), Capacity: 10, Remaining: uint64(d.Remaining), Allowed: d.Allowed(),
				RetryAfter: timeOf(d.RetryAfter), ResetAfter: timeOf(d.ResetAfter), Wait: timeOf(d.Wait),
			}
		}
		c.Granted = max(0, cost)
		want := &ratelimitv1.TakeResponse{Allowed: !c.Denied, Degraded: degraded, Granted: uint64(c.Granted)}
		want.Limits = []*ratelimitv1.Limit{limit(0, name, d), limit(1, "", other)}
		want.Limits[0].Shadow = shadow
		if c.Denied {
			want.DeniedBy, want.RetryAfter = new(uint32), timeOf(d.RetryAfter)
		} else {
			want.Limits[1].TakenAt, want.Limits[1].TakenBy = other.At, decide.TakenBy(&c.Hits[1])
			if d.Allowed() && cost > 0 && d.At != 0 {
				want.Limits[0].TakenAt, want.Limits[0].TakenBy = d.At, decide.TakenBy(&c.Hits[0])^uint64(share)
				if degraded {
					want.Limits[0].TakenAt = -d.At
				}
			}
		}
		wantMessage(t, c.appendTakeResponse(nil), want, new(ratelimitv1.TakeResponse))
	})
}

// FuzzSettleResponse compares the writer of answers to settlements with protobuf's
// messages.
func FuzzSettleResponse(f *testing.F) {
	f.Add(uint8(1), "n", int64(5), int64(0), int64(1), int64(7), int64(1e9), true, false)
	f.Add(uint8(4), "", int64(0), int64(1<<52), int64(1<<40), int64(1<<52), int64(0), true, true)
	f.Add(uint8(3), "a name", int64(0), int64(0), int64(0), int64(0), int64(0), false, true)
	f.Fuzz(func(t *testing.T, algorithm uint8, name string, returned, added, takes, remaining, reset int64, known, degraded bool) {
		const most = bucket.MaxRequests + 1
		l := fuzzedLimit(t, name, bucket.Algorithm(1+algorithm%6))
		s := bucket.Settled{Degraded: degraded}
		if known {
			s = bucket.Settled{
				IsKnown: true, Returned: max(0, returned%most), Added: max(0, added%most), Takes: max(0, takes%most),
				Remaining: max(0, remaining%most), ResetAfter: time.Duration(max(0, reset)), Degraded: degraded,
			}
		}
		c := takeCall{decide.New(decide.Options{}).NewCall()}
		c.Outcomes = []decide.Outcome{{Limits: []*bucket.Limit{l}}, {Limits: []*bucket.Limit{l}, Own: &decide.Override{Set: true}}}
		c.Settled = []decide.Settled{{Descriptor: 0, Settled: s}, {Descriptor: 1}}
		limit := &ratelimitv1.SettledLimit{
			Name: name, Algorithm: ratelimitv1.Algorithm(l.Algorithm), Settled: known,
			Returned: uint64(s.Returned), Added: uint64(s.Added), Takes: uint64(s.Takes), Remaining: uint64(s.Remaining), ResetAfter: timeOf(s.ResetAfter),
		}
		want := &ratelimitv1.SettleResponse{Settled: known, Degraded: known && degraded}
		want.Limits = []*ratelimitv1.SettledLimit{limit, {DescriptorIndex: 1, Algorithm: ratelimitv1.Algorithm(l.Algorithm)}}
		wantMessage(t, c.appendSettleResponse(nil), want, new(ratelimitv1.SettleResponse))
	})
}

// FuzzReleaseResponse compares the writer of answers to releases with protobuf's messages.
func FuzzReleaseResponse(f *testing.F) {
	f.Add("n", uint8(0), int64(5), false)
	f.Add("", uint8(1), int64(0), true)
	f.Add("a name", uint8(2), int64(10_000), false)
	f.Fuzz(func(t *testing.T, name string, released uint8, remaining int64, degraded bool) {
		l := fuzzedLimit(t, name, bucket.Concurrency)
		d := bucket.Decision{Released: bucket.Released(released % (uint8(bucket.ReleasedTooLate) + 1)), Remaining: max(0, remaining%(bucket.MaxHolders+1)), Degraded: degraded}
		c := takeCall{decide.New(decide.Options{}).NewCall()}
		c.Outcomes = []decide.Outcome{{}, {Limits: []*bucket.Limit{l}, Decisions: []bucket.Decision{d}}}
		want := &ratelimitv1.ReleaseResponse{Degraded: degraded, Limits: []*ratelimitv1.ReleasedLimit{{
			DescriptorIndex: 1, Name: name, Released: ratelimitv1.Released(d.Released) + ratelimitv1.Released_RELEASED_NOTHING, Remaining: uint64(d.Remaining),
		}}}
		wantMessage(t, c.appendReleaseResponse(nil), want, new(ratelimitv1.ReleaseResponse))
	})
}
