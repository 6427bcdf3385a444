package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// Denials by the fallback end when Redis is back.
func TestDegradedDenialsAreNotRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) {
		impatient(o)
		o.DenialMemory = time.Second
	})
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1000, Period: time.Hour, OnStoreFailure: bucket.FailDeny}), "a", 1)
	r.proxy.Hold("evalsha")
	for range 3 {
		if o := r.take(context.Background(), h); !o.degraded() || o.decisions[0].Allowed() {
			t.Errorf("mode deny: %+v", o)
		}
	}
	if n := r.metric("redis_known_denials_total"); n != 0 {
		t.Errorf("%v were answered from memory", n)
	}
	r.proxy.Heal(t)
	asynctest.Eventually(t, "Redis decides", func() bool { return r.take(context.Background(), h).decided() })
}
