package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// watchSlack is how early a wait may end, since the watch looks at all waits together.
const watchSlack = 2 * time.Millisecond

// A caller with a deadline is answered before it, by the fallback: it waits
// for Redis for four fifths of its time.
func TestFallbackAnswersBeforeTheCallersDeadline(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"batches": 1000, "each alone": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Batch.Size = size })
			r.proxy.Hold("evalsha")
			const given = 500 * time.Millisecond
			inTime := 0 // answers with at least half of that fifth left
			for range 5 {
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), given)
				o := r.take(ctx, hit(daily(t, 10), "a", 1))
				if time.Since(start) <= given-given/10 && o.degraded() {
					inTime++
				}
				if waited := time.Since(start); waited < given/5*4-watchSlack {
					t.Errorf("it waited for %s of %s", waited, given)
				}
				if o.decided() {
					t.Errorf("without a reply: %+v", o)
				}
				cancel()
			}
			// The machine may be slow now and then.
			if inTime == 0 {
				t.Errorf("of 5 callers none had an answer with a tenth of its %s left", given)
			}
			if n := r.metric("degraded_answers_total", "timeout"); n < float64(inTime) {
				t.Errorf("%v answers were counted for no answer in time", n)
			}
			if r.breakerIsOpen() {
				t.Error("callers' deadlines have opened the breaker")
			}
		})
	}
}

// Without a deadline, or with a later one, a caller waits for redis.timeout.
func TestCallerWithoutDeadlineWaitsForTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for name, size := range map[string]int{"batches": 1000, "each alone": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Timeout, o.Batch.Size = timeout, size })
			best := time.Hour
			for range 5 {
				r.proxy.Hold("evalsha")
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				start := time.Now()
				o := r.take(ctx, hit(daily(t, 10), "a", 1))
				waited := time.Since(start)
				cancel()
				if !o.degraded() || waited < timeout-watchSlack {
					t.Errorf("after %s: %+v", waited, o)
				}
				best = min(best, waited)
				r.proxy.Heal(t)
				r.waitForRedis()
			}
			// No caller waits twice, even on a slow machine.
			if best >= 2*timeout {
				t.Errorf("the fastest answer without Redis took %s, with a timeout of %s", best, timeout)
			}
		})
	}
}

// A request whose deadline has passed is not sent to Redis.
func TestPastDeadlineDoesNotReachRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, unchanged)
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	h := hit(daily(t, 10), "a", 1)
	for range 10 {
		if o := r.take(ctx, h); o.err == nil {
			t.Errorf("after its deadline a caller got %+v", o)
		}
	}
	if n := r.taken(h); n != 0 {
		t.Errorf("%d were taken by callers that had gone before", n)
	}
}

// A check without a reply leaves nothing unknown, since it charges nothing.
func TestChecksHaveNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, impatient)
	r.proxy.Hold("evalsha")
	d := make([]bucket.Decision, 1)
	if err := r.store.Check(context.Background(), []bucket.Hit{hit(daily(t, 1), "a", 1)}, d); err != nil || !d[0].Degraded {
		t.Errorf("a check without a reply: %+v, %v", d, err)
	}
	if n := r.metric("redis_unknown_outcomes_total"); n != 0 {
		t.Errorf("%v unknown outcomes", n)
	}
}
