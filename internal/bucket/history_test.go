package bucket_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// passed is a hit that was admitted.
type passed struct{ at, cost int64 }

// fits returns whether a cost must be admitted, and whether it may be. The two differ
// only for a sliding window, which may count a hit for up to a slot longer than its
// period.
func fits(l *bucket.Limit, history []passed, now, cost int64) (must, may bool) {
	since := func(start int64) (sum int64) {
		for _, p := range history {
			if p.at >= start {
				sum += p.cost
			}
		}
		return sum
	}
	switch l.Algorithm {
	case bucket.FixedWindow:
		ok := since(now-now%l.PeriodMicros)+cost <= l.Requests
		return ok, ok
	case bucket.SlidingWindow, bucket.SlidingLog:
		exact := since(now-l.PeriodMicros+1)+cost <= l.Requests
		safe := since(now-l.PeriodMicros-l.SlotMicros+2)+cost <= l.Requests
		return safe, exact
	default:
		// From each hit on, at most the burst and what came back since.
		sum := cost
		for _, p := range slices.Backward(history) {
			sum += p.cost
			maxSum := big.NewRat(l.Requests*(now-p.at), l.PeriodMicros)
			maxSum.Add(maxSum, big.NewRat(l.Burst, 1))
			if big.NewRat(sum, 1).Cmp(maxSum) > 0 {
				return false, false
			}
		}
		return cost <= l.Burst, cost <= l.Burst
	}
}

func mustPeriodLimit(t testing.TB, s bucket.Spec) *bucket.Limit {
	t.Helper()
	l, err := bucket.NewPeriodLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLimitsAtTheirBoundsAreAsTheOracleSays runs traces to bounds that random traces
// rarely reach.
func TestLimitsAtTheirBoundsAreAsTheOracleSays(t *testing.T) {
	const clock = int64(1_800_000_000_000_000)
	limit := func(s bucket.Spec) *bucket.Limit {
		s.Postpaid = bucket.PostpaidAlways
		return buckettest.NewLimit(t, s)
	}
	take := func(l *bucket.Limit, after, cost int64) buckettest.Op {
		return buckettest.Op{Clock: clock + after, GivesBack: -1, Hits: []bucket.Hit{{Limit: l, Key: []byte("k"), Cost: cost}}}
	}

	t.Run("stamps of a log", func(t *testing.T) {
		l := limit(bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 3, Period: time.Second})
		var ops []buckettest.Op
		for i := range int64(1010) {
			ops = append(ops, take(l, i, 1+i%2))
		}
		back := ops[1005]
		back.Clock, back.GivesBack = clock+2000, 1005
		ops = append(ops, back, take(l, 2000, -5), take(l, 1_000_500, 1), take(l, 1_001_009, 0), take(l, 2_000_499, 0), take(l, 2_000_500, 1))
		check(t, ops)
	})
	t.Run("the highest debt falls with the rate", func(t *testing.T) {
		// Both have 7,000 units to a token.
		fast := limit(bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3, Period: 7 * time.Millisecond})
		slow := limit(bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1, Period: 7 * time.Millisecond})
		if fast.Unit != slow.Unit || fast.MaxDebt <= slow.MaxDebt {
			t.Fatalf("units %d and %d, most %d and %d", fast.Unit, slow.Unit, fast.MaxDebt, slow.MaxDebt)
		}
		check(t, []buckettest.Op{
			take(fast, 0, bucket.MaxCost), take(slow, 1, 0), take(slow, 1, -1000), take(fast, 2, 0), take(slow, 1e9, 1), take(fast, 1e9, 0),
		})
	})
	t.Run("the largest limits", func(t *testing.T) {
		for _, a := range bucket.Algorithms() {
			if !buckettest.MayBeLarge(a) {
				continue
			}
			for _, postpaid := range []bucket.Postpaid{bucket.PostpaidNever, bucket.PostpaidAlways, bucket.PostpaidAuto} {
				l := buckettest.NewLimit(t, bucket.Spec{Algorithm: a, Requests: bucket.MaxRequests, Period: 64 * time.Second, Postpaid: postpaid}).Reported()
				const half = 32_000_000
				first := take(l, 5, bucket.MaxRequests-1)
				back := first
				back.Clock, back.GivesBack = clock+half, 3
				check(t, []buckettest.Op{
					take(l, 0, 0), take(l, 0, bucket.MaxCost), take(l, 0, -bucket.MaxCost), first, take(l, 5, 2), take(l, 6, 1), take(l, 6, 1),
					take(l, 7, bucket.MaxRequests), take(l, 8, -1), take(l, 9, bucket.MaxRequests), back, take(l, half, 1<<32), take(l, half, 0),
					take(l, 2*half, bucket.MaxRequests), take(l, 2*half+10, bucket.MaxRequests), take(l, 3*half, bucket.MaxRequests-1), take(l, 4*half+20, bucket.MaxRequests),
				})
			}
		}
	})
	t.Run("levels", func(t *testing.T) {
		for _, a := range buckettest.Rates() {
			for _, period := range []time.Duration{bucket.MinPeriod, bucket.MaxPeriod} {
				l := limit(bucket.Spec{Algorithm: a, Requests: 1000, Period: period})
				half := period.Microseconds() / 2
				check(t, []buckettest.Op{
					take(l, 0, bucket.MaxCost), take(l, half, bucket.MaxCost), take(l, half, 7), take(l, half, 0),
					take(l, 2*half, 0), take(l, 2*half, -bucket.MaxCost), take(l, 2*half, 5), take(l, 3*half, 0), take(l, 4*half, 0),
				})
			}
		}
	})
}

func check(t *testing.T, ops []buckettest.Op) {
	t.Helper()
	if err := buckettest.NewTrace(ops).Run(openSteps()); err != nil {
		text := fmt.Sprint(err)
		t.Fatal(text[:min(len(text), 1500)], "\n...\n", text[max(0, len(text)-1500):])
	}
}
