package tally_test

import (
	"math"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// However often the largest cost is asked for, no sum overflows.
func TestSumsOfCostsStop(t *testing.T) {
	const maxSum = 1 << 62
	var cost tally.Cost
	var limit tally.LimitCounts
	var counts tally.Counts
	last := uint64(0)
	for range 5000 {
		cost.Add(bucket.MaxRequests)
		limit.Add(tally.LimitDenied, bucket.MaxRequests)
		limit.Add(tally.LimitDenied, 1)
		counts.AddHits(tally.Hits{Within: bucket.MaxRequests, Over: bucket.MaxRequests, Fit: bucket.MaxRequests})
		if now := cost.Load(); now < last {
			t.Fatalf("%d after %d", now, last)
		} else {
			last = now
		}
	}
	if last != maxSum {
		t.Errorf("the sum is %d, want %d", last, uint64(maxSum))
	}
	if n := limit.Cost(tally.LimitDenied); n != maxSum+5000 {
		t.Errorf("the cost of a limit is %d, want %d", n, uint64(maxSum+5000))
	}
	hits := counts.Hits()
	if hits.Total() != 3*maxSum || hits.Plus(hits).Within != maxSum {
		t.Errorf("the hits are %+v", hits)
	}
	cost.Add(math.MaxUint32)
	if n := cost.Load(); n != maxSum {
		t.Errorf("then it is %d", n)
	}
}
