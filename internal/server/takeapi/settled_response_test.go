package takeapi

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

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
