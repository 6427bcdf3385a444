package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func unchanged(*testOptions) {}

// Requests that come while a batch is in flight go together when that one is back.
func TestWaitingRequestsGoAsOneBatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		size, asked, hits, calls int
	}{
		{1000, 300, 1, 1},
		{100, 300, 1, 3},
		{100, 60, 3, 2}, // 33 requests of 3 hits are 99
		{2, 5, 3, 5},    // a request is never torn apart
		{1, 5, 1, 0},    // nobody waits
	} {
		t.Run(fmt.Sprintf("%d requests of %d in batches of %d", tc.asked, tc.hits, tc.size), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Batch.Size = tc.size })
			l := daily(t, 1)
			r.proxy.Hold("|user=first#")
			first := r.beginHeld(hit(l, "first", 1))
			before := r.calls()
			var others []<-chan outcome
			for i := range tc.asked {
				var hits []bucket.Hit
				for j := range tc.hits {
					hits = append(hits, hit(l, fmt.Sprint(i, " ", j), 1))
				}
				others = append(others, r.begin(context.Background(), hits...))
			}
			if tc.calls > 0 {
				r.waitForQueue(tc.asked)
				if n := r.calls() - before; n != 0 {
					t.Errorf("%d calls were made beside the one that is away", n)
				}
				r.proxy.Heal(t)
			}
			for _, done := range others {
				if o := <-done; !o.decided() || !bucket.Allowed(o.decisions) {
					t.Fatalf("a take got %+v", o)
				}
			}
			if n := r.calls() - before; n != tc.calls && tc.calls > 0 {
				t.Errorf("%d calls, want %d", n, tc.calls)
			}
			r.proxy.Heal(t)
			if o := <-first; !o.decided() {
				t.Errorf("the first take got %+v", o)
			}
		})
	}
}

// InFlight batches are in flight at most.
func TestBatchesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) { o.Batch.InFlight = 2 })
	l := daily(t, 2)
	r.proxy.Hold("evalsha")
	before := r.calls()
	one, two := r.beginHeld(hit(l, "one", 1)), r.beginHeld(hit(l, "two", 1))
	three := r.begin(context.Background(), hit(l, "three", 1))
	r.waitForQueue(1)
	if n := r.calls() - before; n != 2 {
		t.Errorf("%d calls are away, want 2", n)
	}
	r.proxy.Heal(t)
	for _, done := range []<-chan outcome{one, two, three} {
		if o := <-done; !o.decided() || o.decisions[0].Remaining != 1 {
			t.Errorf("a take got %+v", o)
		}
	}
}

// A request that finds the queue full fails at once, until others leave it.
func TestRequestThatFindsTheQueueFullFailsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) { o.Batch.Queue = 3 })
	l := daily(t, 10)
	r.proxy.Hold("evalsha")
	first := r.beginHeld(hit(l, "first", 1))
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var waiting []<-chan outcome
	for range 3 {
		waiting = append(waiting, r.begin(ctx, hit(l, "a", 1)))
	}
	r.waitForQueue(3)
	if n := r.metric("redis_queue_max_length"); n != 3 {
		t.Errorf("the metrics say that %v may wait", n)
	}
	for range 10 {
		if o := r.take(context.Background(), hit(l, "a", 1)); !o.degraded() {
			t.Fatalf("with a full queue: %+v", o)
		}
	}
	if n := r.metric("degraded_answers_total", "queue_full"); n != 10 || r.proxy.Held() != 1 {
		t.Errorf("%v answers were given for a full queue, with %d calls away", n, r.proxy.Held())
	}

	// Abandoned requests make room.
	leave()
	for _, done := range waiting {
		if o := <-done; !errors.Is(o.err, context.Canceled) {
			t.Errorf("a caller that left got %+v", o)
		}
	}
	last := r.begin(context.Background(), hit(l, "a", 1))
	r.waitForQueue(1)
	r.proxy.Heal(t)
	if a, b := <-first, <-last; !a.decided() || !b.decided() {
		t.Errorf("the first and the last got %+v and %+v", a, b)
	}
	if n := r.taken(hit(l, "a", 1)); n != 1 {
		t.Errorf("%d were taken by the one that stayed", n)
	}
}

// A caller that leaves is charged if its batch was sent before, and only then; never
// twice.
func TestCallerThatLeavesIsChargedOnlyIfSent(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		},
		"out of time": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 3*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Batch.InFlight = 2 })
			l := daily(t, 100)
			sent, unsent, stays := hit(l, "sent", 7), hit(l, "unsent", 7), hit(l, "stays", 7)
			r.proxy.Hold("evalsha")
			first := r.beginHeld(hit(l, "first", 1)) // whose caller sends by itself
			ctx, cancel := leave()
			defer cancel()
			away := r.begin(ctx, sent)
			asynctest.Eventually(t, "the reply is held", func() bool { return r.proxy.Held() == 2 })
			waits := r.begin(ctx, unsent)
			r.waitForQueue(1)
			stayed := r.begin(context.Background(), stays)
			r.waitForQueue(2)
			if _, timed := ctx.Deadline(); !timed {
				cancel()
			}
			for _, done := range []<-chan outcome{away, waits} {
				// A caller that runs out of time gets the fallback's answer.
				if o := <-done; o.decided() {
					t.Errorf("a caller that left got %+v", o)
				}
			}
			if n := r.metric("redis_unknown_outcomes_total"); n != 1 {
				t.Errorf("%v outcomes are unknown, want 1", n)
			}
			r.proxy.Heal(t)
			for _, done := range []<-chan outcome{first, stayed} {
				if o := <-done; !o.decided() {
					t.Errorf("a caller that stayed got %+v", o)
				}
			}
			for _, c := range []struct {
				h    bucket.Hit
				want int64
			}{{sent, 7}, {unsent, 0}, {stays, 7}} {
				if n := r.taken(c.h); n != c.want {
					t.Errorf("of %s were taken %d, want %d", c.h.Key, n, c.want)
				}
			}
		})
	}
}

// A caller that leaves while it waits is not charged, however soon its batch goes then,
// and leaves nothing unknown.
func TestCallerThatLeavesJustBeforeItsBatchIsNotCharged(t *testing.T) {
	t.Parallel()
	var hold atomic.Pointer[heldCommand]
	r := newRig(t, func(o *testOptions) {
		o.Clock = func() int64 {
			if h := hold.Swap(nil); h != nil {
				h.wait()
			}
			return time.Now().UnixMicro()
		}
	})
	l := daily(t, 100)
	for i := range 10 {
		held := newHeldCommand(t)
		hold.Store(held)
		first := r.begin(context.Background(), hit(l, "first", 1))
		<-held.reached
		ctx, leave := context.WithCancel(context.Background())
		left := hit(l, fmt.Sprint("left", i), 1)
		leaves := r.begin(ctx, left)
		r.waitForQueue(1)
		leave()
		held.release()
		if o := <-leaves; !errors.Is(o.err, context.Canceled) {
			t.Errorf("a caller that left got %+v", o)
		}
		if o := <-first; !o.decided() {
			t.Errorf("the caller before it got %+v", o)
		}
		if n := r.taken(left); n != 0 {
			t.Errorf("a caller that left was charged %d", n)
		}
	}
	if n := r.metric("redis_unknown_outcomes_total"); n != 0 {
		t.Errorf("%v outcomes are unknown, want none", n)
	}
}

// When a connection fails after a command was sent, no caller is charged twice, and
// the next one is answered.
func TestLostReplyIsChargedOnce(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(p *redistest.Proxy, text string) <-chan struct{}{
		"cut":   (*redistest.Proxy).CutAfter,
		"reset": (*redistest.Proxy).ResetAfter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, unchanged)
			l := daily(t, 1000)
			for i := range 10 {
				h := hit(l, fmt.Sprint("lost", i), 7)
				done := after(r.proxy, "evalsha")
				o := r.take(context.Background(), h)
				<-done
				if !o.degraded() {
					t.Errorf("a take whose reply was lost got %+v", o)
				}
				if n := r.taken(h); n != 7 {
					t.Errorf("the store has charged %d for one take of 7", n)
				}
				if o := r.take(context.Background(), h); !o.decided() || o.decisions[0].Remaining != 1000-14 {
					t.Errorf("the next take got %+v", o)
				}
			}
			if n := r.metric("degraded_answers_total", "unreachable"); n != 10 {
				t.Errorf("%v answers were given for a connection that failed, want 10", n)
			}
			if n := r.metric("redis_unknown_outcomes_total"); n != 10 {
				t.Errorf("%v outcomes are unknown, want 10", n)
			}
		})
	}
}
