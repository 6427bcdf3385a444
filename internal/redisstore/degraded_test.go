package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A request that a caller doubts is counted under its mode, also where that is to fail.
func TestDoubtedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(*testOptions) {})
	cause := errors.New("the limits may be others")
	take := func(ctx context.Context, mode bucket.FailureMode) error {
		l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 3, Period: time.Hour, OnStoreFailure: mode})
		return r.store.TakeDegraded(ctx, bucket.Reservation{}, []bucket.Hit{hit(l, "doubted", 1)}, make([]bucket.Decision, 1), cause)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mode := range bucket.FailureModes() {
		err := take(t.Context(), mode)
		if wantsErr := mode == bucket.FailError; wantsErr != errors.Is(err, cause) || !wantsErr && err != nil {
			t.Errorf("mode %s: %v", mode, err)
		}
		if err := take(gone, mode); !errors.Is(err, context.Canceled) {
			t.Errorf("mode %s, when the caller disconnected: %v", mode, err)
		}
		if n := r.metric("degraded_answers_total", mode.String(), "unsure"); n != 1 {
			t.Errorf("mode %s: %v are counted, want 1", mode, n)
		}
	}
}
