package buckettest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// RunOrder tests that At and Seq give the order of decisions: many takes of one key
// at the same time, through stores that share it, are sorted by them, and what remains
// after each must then fall by one. A give-back reports its own, even if nothing is left
// to give back.
func RunOrder(t *testing.T, stores ...bucket.Store) {
	const takers, takes = 32, 60
	l := NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: takers * takes, Period: bucket.MaxPeriod})
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []bucket.Decision
	var running sync.WaitGroup
	for i := range takers {
		running.Go(func() {
			own := make([]bucket.Decision, takes)
			for j := range own {
				// Some with another key, so that equal and different requests travel
				// together.
				hits := []bucket.Hit{Hit(l, "order", 1), Hit(l, "other", 0)}[:1+(i+j)%2]
				got := make([]bucket.Decision, len(hits))
				if err := stores[i%len(stores)].Take(ctx, hits, got); err != nil {
					t.Error(err)
					return
				}
				own[j] = got[0]
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	running.Wait()
	slices.SortFunc(all, func(a, b bucket.Decision) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq)) })
	together := 0
	for i, d := range all {
		if want := int64(takers*takes - 1 - i); d.Remaining != want || d.Seq == 0 {
			t.Fatalf("take %d of %d, at %d, seq %d: %d remain, want %d", i, len(all), d.At, d.Seq, d.Remaining, want)
		}
		if i > 0 && d.At == all[i-1].At {
			together++
		}
	}
	back := []bucket.Decision{all[0], all[0]}
	if err := stores[0].GiveBack(ctx, []bucket.Hit{Hit(l, "order", 1), Hit(l, "gone", 1)}, back); err != nil {
		t.Fatal(err)
	}
	for _, d := range back {
		if last := all[len(all)-1]; d.Seq == 0 || d.At < last.At || d.At == last.At && d.Seq <= last.Seq {
			t.Errorf("a give-back at %d, seq %d came after a take at %d, seq %d", d.At, d.Seq, last.At, last.Seq)
		}
	}
	t.Logf("%d of %d have the moment of the one before", together, len(all))
}
