package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A caller waits for Redis for four fifths of its time, so that the fallback answers before
// its deadline; without a deadline, or with a late one, for redis.timeout.
func TestCallersWaitForAPartOfTheirTime(t *testing.T) {
	t.Parallel()
	const watchSlack = 2 * time.Millisecond // the watch looks at all waits together
	for _, c := range []struct {
		name                 string
		size                 int
		timeout, given, wait time.Duration
	}{
		{"a deadline, batches", 1000, time.Minute, 20 * time.Second, 16 * time.Second},
		{"a deadline, each alone", 1, time.Minute, 20 * time.Second, 16 * time.Second},
		{"a late deadline, batches", 1000, time.Second, time.Minute, time.Second},
		{"a late deadline, each alone", 1, time.Second, time.Minute, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Batch.Size, o.Timeout = c.size, c.timeout })
			r.proxy.Hold("evalsha")
			before := r.metric("degraded_answers_total", "timeout") // of a slow machine, before Redis answered
			ctx, cancel := context.WithTimeout(context.Background(), c.given)
			defer cancel()
			start := time.Now()
			o := r.take(ctx, hit(daily(t, 10), "a", 1))
			if waited := time.Since(start); !o.degraded() || waited < c.wait-watchSlack {
				t.Errorf("after %s: %+v", waited, o)
			}
			if n := r.metric("degraded_answers_total", "timeout") - before; n != 1 {
				t.Errorf("%v answers were counted for no answer in time", n)
			}
			if c.given < c.timeout && r.breakerIsOpen() {
				t.Error("a caller's deadline has opened the breaker")
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
