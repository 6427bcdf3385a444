package tally_test

import (
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

func TestHitsOfManyCallersAddUp(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 1000
	var c tally.Counts
	if c.Hits() != (tally.Hits{}) {
		t.Errorf("at first: %+v", c.Hits())
	}
	one := tally.Hits{Within: 1, Over: 2, Fit: 3, Near: 4, Shadowed: 5}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				c.AddHits(one)
			}
		})
	}
	all.Wait()
	const n = callers * each
	if want := (tally.Hits{Within: n, Over: 2 * n, Fit: 3 * n, Near: 4 * n, Shadowed: 5 * n}); c.Hits() != want || want.Total() != 6*n {
		t.Errorf("got %+v, want %+v, %d in all", c.Hits(), want, want.Total())
	}
	if sum := one.Plus(one); sum != (tally.Hits{Within: 2, Over: 4, Fit: 6, Near: 8, Shadowed: 10}) {
		t.Errorf("twice %+v is %+v", one, sum)
	}
}
