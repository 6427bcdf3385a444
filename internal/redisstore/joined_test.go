package redisstore_test

import (
	"context"
	"slices"
	"testing"
)

// Equal requests that wait together are sent as one line, and are each decided.
func TestEqualRequestsAreSentAsOne(t *testing.T) {
	t.Parallel()
	const asked, limit = 60, 40
	r := newRig(t, unchanged)
	h := hit(daily(t, limit), "equal", 1)
	r.proxy.Hold("evalsha")
	first := r.beginHeld(hit(daily(t, limit), "first", 1))
	joined, calls := r.metric("redis_coalesced_requests_total"), r.calls()
	var waiting []<-chan outcome
	for range asked {
		waiting = append(waiting, r.begin(context.Background(), h))
	}
	r.waitForQueue(asked)
	r.proxy.Heal(t)
	<-first
	var remaining []int64 // to those that were allowed
	for _, done := range waiting {
		if o := <-done; !o.decided() {
			t.Errorf("a take got %+v", o)
		} else if o.decisions[0].Allowed() {
			remaining = append(remaining, o.decisions[0].Remaining)
		}
	}
	slices.Sort(remaining)
	if len(slices.Compact(remaining)) != limit {
		t.Errorf("of %d takes from %d these remain: %v", asked, limit, remaining)
	}
	if n := r.metric("redis_coalesced_requests_total") - joined; n != asked-1 {
		t.Errorf("%v of %d joined another", n, asked)
	}
	if n := r.calls() - calls; n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}
