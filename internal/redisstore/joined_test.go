package redisstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// Equal requests that wait together are sent as one line. They are decided as if they
// had come alone, one after the other.
func TestCoalescedRequestsAreDecidedOneByOne(t *testing.T) {
	t.Parallel()
	const asked = 60
	clock := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	r := newRig(t, func(o *testOptions) { o.Clock = func() int64 { return clock } })
	o := options(redisconn.Single, r.server.Addr())
	o.Clock = func() int64 { return clock }
	alone := open(t, o)
	for _, a := range []bucket.Algorithm{bucket.GCRA, bucket.SlidingLog} { // script tests all
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 40, Period: time.Hour})
		other := newLimit(t, bucket.Spec{Name: "other", Algorithm: a, Requests: 25, Period: time.Minute})
		for name, hits := range map[string][]bucket.Hit{
			"one hit":    {hit(l, "one", 1)},
			"cost of 3":  {hit(l, "three", 3)},
			"two limits": {hit(l, "two", 1), hit(other, "two", 1)},
			"equal keys": {hit(l, "equal", 1), hit(l, "equal", 1)},
			"a peek":     {hit(l, "peek", 0)},
		} {
			r.proxy.Hold("evalsha")
			first := r.beginHeld(hit(l, "first", 0))
			joined, calls := r.metric("redis_coalesced_requests_total"), r.calls()
			var waiting []<-chan outcome
			for range asked {
				waiting = append(waiting, r.begin(context.Background(), hits...))
			}
			r.waitForQueue(asked)
			r.proxy.Heal(t)
			<-first
			var got, want [][]bucket.Decision
			for _, done := range waiting {
				o := <-done
				if !o.decided() {
					t.Fatalf("%s, %s: %+v", a, name, o)
				}
				for i := range o.decisions {
					o.decisions[i].Seq = 1 // as of those that go alone
				}
				got = append(got, o.decisions)
				want = append(want, take(t, alone, hits...))
			}
			if n := r.metric("redis_coalesced_requests_total") - joined; n != asked-1 {
				t.Errorf("%s, %s: %v of %d joined another", a, name, n, asked)
			}
			if n := r.calls() - calls - asked; n != 1 {
				t.Errorf("%s, %s: %d calls, want 1", a, name, n)
			}
			sortDecisions(got)
			sortDecisions(want)
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s, %s: together they got\n%+v\none after the other\n%+v", a, name, got, want)
			}
		}
	}
}

func sortDecisions(all [][]bucket.Decision) {
	slices.SortFunc(all, func(a, b []bucket.Decision) int {
		return slices.CompareFunc(a, b, func(a, b bucket.Decision) int {
			if a.Allowed() != b.Allowed() {
				return int(a.RetryAfter - b.RetryAfter)
			}
			return int(a.Remaining - b.Remaining)
		})
	})
}
