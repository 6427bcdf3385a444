package redisstore_test

import (
	"context"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// What Redis took is given back to Redis or to nobody: the share that a daemon
// grants while Redis is away does not grow by it.
func TestGiveBackThatRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, unchanged)
	h := hit(newLimit(t, bucket.Spec{
		Algorithm: bucket.TokenBucket, Requests: 10, Period: bucket.MaxPeriod, OnStoreFailure: bucket.FailLocal,
	}), "a", 4)
	taken := r.take(ctx, h)
	if !taken.decided() {
		t.Fatalf("a take got %+v", taken)
	}
	r.proxy.Refuse()
	if o := r.take(ctx, h); !o.degraded() || o.decisions[0].Remaining != 6 {
		t.Fatalf("a take of 4 from a share of 10 got %+v", o)
	}
	if err := r.store.GiveBack(ctx, []bucket.Hit{h}, taken.decisions); err == nil {
		t.Error("a give-back that Redis did not answer gives no error")
	}
	h.Cost = 1
	if o := r.take(ctx, h); !o.degraded() || o.decisions[0].Remaining != 5 {
		t.Errorf("after it a take from the share got %+v, want 5 to remain", o)
	}
}
