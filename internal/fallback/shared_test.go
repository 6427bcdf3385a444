package fallback_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// However many callers ask at once, a daemon admits exactly its share; a group, exactly
// the smallest share of its limits.
func TestExactlyTheShareIsAdmitted(t *testing.T) {
	const callers, asks, replicas = 8, 50, 3
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			f := newFixture(t, local, replicas)
			s := bucket.Spec{Algorithm: a, Requests: 301, Period: time.Hour}
			narrow, wide := hit(t, s, "narrow", 1), hit(t, spec(local, 3000), "wide", 1)
			hits := []bucket.Hit{narrow, wide, hit(t, spec(allow, 10), "open", 1)}
			var admitted atomic.Int64
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					d := make([]bucket.Decision, len(hits))
					for range asks {
						if err := f.Take(context.Background(), hits, d, errDown); err != nil {
							t.Errorf("Take: %v", err)
						}
						if bucket.Allowed(d) {
							admitted.Add(1)
						}
					}
				})
			}
			done.Wait()
			if n := admitted.Load(); n != 100 {
				t.Errorf("%d were admitted, want a third of 301", n)
			}
			if n := f.left(t, wide); n != 900 {
				t.Errorf("%d remain of the wide limit, want 900", n)
			}
		})
	}
}
