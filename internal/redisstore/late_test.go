package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// slowly gives Redis more time than a test takes.
func slowly(o *testOptions) { o.Timeout = time.Minute }

// slots is a limit of two slots with a failure mode.
func slots(t *testing.T, mode bucket.FailureMode) *bucket.Limit {
	return newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 2, Period: time.Hour, OnStoreFailure: mode})
}

// free returns how many slots are free, by a store that reaches Redis past the proxy.
func (r *rig) free(l *bucket.Limit) int64 { return take(r.t, r.direct, by(l, "a", "", 0))[0].Remaining }

// A take whose caller disconnects while Redis decides frees its slot once the reply is
// there, also if its release has overtaken it.
func TestSlotOfACallerThatDisconnectedIsFreed(t *testing.T) {
	t.Parallel()
	r := newRig(t, slowly)
	l := slots(t, bucket.FailDeny)
	take(t, r.direct, by(l, "a", "held before", 1))
	if d := take(t, r.direct, by(l, "a", "one", -1))[0]; d.Released != bucket.ReleasedNothing {
		t.Errorf("a release that overtakes its take finds %v", d.Released)
	}
	r.proxy.Hold("evalsha")
	// With less time than Redis has, nobody leads, so that each caller can leave.
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	done := make(chan error, 1)
	go func() { done <- r.take(ctx, by(l, "a", "one", 1), by(l, "a", "held before", 1)).err }()
	asynctest.Eventually(t, "Redis has decided", func() bool { return r.proxy.Held() == 1 })
	if n := r.free(l); n != 0 {
		t.Fatalf("%d slots are free while the reply is on its way", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the take ends with %v", err)
	}
	if n := r.free(l); n != 0 {
		t.Errorf("%d slots are free before the reply has come", n)
	}
	r.proxy.Heal(t)
	asynctest.Eventually(t, "the new slot is free", func() bool { return r.free(l) == 1 })
	if d := take(t, r.direct, by(l, "a", "held before", 1))[0]; d.Renewal == bucket.NotRenewed {
		t.Errorf("the slot that was only renewed is free: %+v", d)
	}
}

// A caller that was let through without Redis keeps the slot that Redis gave it late; one
// that was denied does not.
func TestSlotOfALateReply(t *testing.T) {
	t.Parallel()
	for mode, free := range map[bucket.FailureMode]int64{bucket.FailAllow: 1, bucket.FailDeny: 2} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slowly)
			l := slots(t, mode)
			r.proxy.Hold("evalsha")
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // of which the last fifth is for the answer
			defer cancel()
			if o := r.take(ctx, by(l, "a", "one", 1)); !o.degraded() || o.decisions[0].Allowed() != (mode == bucket.FailAllow) {
				t.Fatalf("the take gets %+v, %v", o.decisions, o.err)
			}
			if n := r.free(l); n != 1 {
				t.Fatalf("%d slots are free once Redis has decided", n)
			}
			r.proxy.Heal(t)
			asynctest.Eventually(t, "the reply is there", func() bool { return r.proxy.Held() == 0 })
			r.take(context.Background(), by(l, "b", "another", 1)) // after the reply, on the same node
			asynctest.Eventually(t, "the slot is free or kept", func() bool { return r.free(l) == free })
		})
	}
}
