package buckettest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

// RunResets makes callers take from the limits of a subject while reset forgets its
// states again and again. No limit may admit more than its requests once, and once more
// for each reset. stores share their states, as those of daemons do; reset returns once
// no store knows anything of the states of the keys.
func RunResets(t *testing.T, stores []bucket.Store, reset func(t *testing.T, keys []string)) {
	for _, a := range Rates() {
		t.Run(a.String(), func(t *testing.T) {
			const narrow, wide = 20, 30
			hits := []bucket.Hit{
				Hit(NewLimit(t, bucket.Spec{Name: "narrow", Algorithm: a, Requests: narrow, Period: still}), "reset", 1),
				Hit(NewLimit(t, bucket.Spec{Name: "wide", Algorithm: a, Requests: wide, Period: still}), "reset", 1),
			}
			var keys []string
			for i := range hits {
				keys = append(keys, stores[0].Locate(&hits[i]).Key)
			}
			admitted, resets := takeWhileReset(t, stores, hits, func() { reset(t, keys) })
			if admitted > narrow*(resets+1) || admitted < narrow*2 {
				t.Errorf("%d admitted by a limit of %d with %d resets", admitted, narrow, resets)
			}
			d := Check(t, stores[0], hits...)
			if used, other := narrow-d[0].Remaining, wide-d[1].Remaining; used != other {
				t.Errorf("%d were taken of one limit and %d of the other: a reset was not atomic", used, other)
			}
			resetIsFelt(t, stores, hits, func() { reset(t, keys) })
		})
	}
}

// takeWhileReset returns how many groups were admitted during how many resets.
func takeWhileReset(t *testing.T, stores []bucket.Store, hits []bucket.Hit, reset func()) (admitted, resets int64) {
	const callers = 64
	times := soaktest.Long[int64](6, 25)
	var taken atomic.Int64
	var wait sync.WaitGroup
	end := make(chan struct{})
	for i := range callers {
		wait.Go(func() {
			decisions := make([]bucket.Decision, len(hits))
			for {
				select {
				case <-end:
					return
				default:
				}
				if err := stores[i%len(stores)].Take(context.Background(), hits, decisions); err != nil {
					t.Error(err)
					return
				}
				if bucket.Allowed(decisions) {
					taken.Add(1)
				}
			}
		})
	}
	for range times {
		before := taken.Load()
		reset()
		for taken.Load() == before && !t.Failed() {
			// Those that were denied before must pass again.
			Check(t, stores[0], hits...)
		}
	}
	close(end)
	wait.Wait()
	return taken.Load(), times
}

// resetIsFelt takes until each store has denied, and takes at once after a reset.
func resetIsFelt(t *testing.T, stores []bucket.Store, hits []bucket.Hit, reset func()) {
	t.Helper()
	for i, s := range stores {
		for _, other := range slices.Concat(stores, stores) {
			for bucket.Allowed(Take(t, other, hits...)) {
			}
		}
		reset()
		if d := Take(t, s, hits...); !bucket.Allowed(d) {
			t.Errorf("store %d denies after a reset: %+v", i, d)
		}
	}
}
