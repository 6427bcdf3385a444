package buckettest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

const (
	daemons = 3
	callers = 8   // of each daemon
	asks    = 15  // of each caller: more than there is
	limited = 100 // requests
)

// runShared: many callers of several stores that share their states are admitted exactly
// as often as the limit says. Stores that share nothing are tested as one.
func runShared(t *testing.T, h Harness) {
	open := h.OpenShared
	if open == nil {
		open = func(t *testing.T, n int) []bucket.Store {
			one := h.Open(t, nil)
			stores := make([]bucket.Store, n)
			for i := range stores {
				stores[i] = one
			}
			return stores
		}
	}
	for _, a := range Rates() {
		t.Run(a.String(), func(t *testing.T) {
			stores := open(t, daemons)
			x := Hit(stillLimit(t, a, limited), "x", 1)
			if n := admitAtOnce(t, stores, x); n != limited {
				t.Errorf("%d were admitted, want %d", n, limited)
			}
			for _, s := range stores {
				wantRemaining(t, s, x, 0)
			}
		})
	}
	t.Run("group", func(t *testing.T) {
		stores := open(t, daemons)
		hits := eachAlgorithm(t, 2*limited, 1)
		hits = append(hits, Hit(stillLimit(t, bucket.FixedWindow, limited), "narrow", 1))
		for i := range hits {
			hits[i].Place = []byte("one")
		}
		if n := admitAtOnce(t, stores, hits...); n != limited {
			t.Errorf("%d were admitted, want %d", n, limited)
		}
		for _, x := range hits[:len(hits)-1] {
			wantRemaining(t, stores[0], x, limited)
		}
	})
}

// admitAtOnce lets all callers take hits at the same time, and returns how many
// groups were allowed.
func admitAtOnce(t *testing.T, stores []bucket.Store, hits ...bucket.Hit) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var admitted atomic.Int64
	var done sync.WaitGroup
	for i := range daemons * callers {
		store := stores[i%daemons]
		done.Go(func() {
			decisions := make([]bucket.Decision, len(hits))
			for range asks {
				if err := store.Take(ctx, hits, decisions); err != nil {
					t.Errorf("Take: %v", err)
					return
				}
				if bucket.Allowed(decisions) {
					admitted.Add(1)
				}
			}
		})
	}
	done.Wait()
	return admitted.Load()
}
