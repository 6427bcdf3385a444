package buckettest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Admitted is the history of what a limit admitted, in the order of time.
type Admitted []struct{ At, Cost int64 }

// Add adds a cost that was admitted at the moment at.
func (ad *Admitted) Add(at, cost int64) {
	*ad = append(*ad, struct{ At, Cost int64 }{at, cost})
}

// Exceeds returns an error if more was admitted than the limit allows:
//   - a bucket: between any two hits, both included, at most the burst plus the
//     refill in between,
//   - a fixed window: in each of the epoch's windows at most the requests,
//   - a sliding window or log: in any span of a period at most the requests.
func (ad Admitted) Exceeds(l *bucket.Limit) error {
	for i := range ad {
		var sum int64
		for j := i; j < len(ad); j++ {
			if !l.Algorithm.IsBucket() && ad[j].At >= spanEnd(l, ad[i].At) {
				break
			}
			sum += ad[j].Cost
			if maxSum := maxBetween(l, ad[i].At, ad[j].At); big.NewRat(sum, 1).Cmp(maxSum) > 0 {
				return fmt.Errorf("%s: %d passed from %d to %d, at most %s may", describe(l), sum, ad[i].At, ad[j].At, maxSum.FloatString(3))
			}
		}
	}
	return nil
}

// spanEnd returns the end of the span in which a hit at the moment at counts.
func spanEnd(l *bucket.Limit, at int64) int64 {
	if l.Algorithm == bucket.FixedWindow {
		return windowEnd(l, at)
	}
	return at + l.Period.Microseconds()
}

// maxBetween returns how much may be admitted from one moment to another.
func maxBetween(l *bucket.Limit, from, to int64) *big.Rat {
	maxSum := big.NewRat(l.Capacity, 1)
	if l.Algorithm.IsBucket() {
		ticks := big.NewRat(to/l.Quantum-from/l.Quantum, 1)
		maxSum.Add(maxSum, ticks.Mul(ticks, big.NewRat(l.Requests*l.Quantum, l.Period.Microseconds())))
	}
	return maxSum
}

// runSideBySide: while some daemons have the old rules and some the new ones, no
// more is admitted than the larger limit allows. Of fixed windows with periods of their own
// each begins a count at its own borders: so the larger here has no longer one.
func runSideBySide(t *testing.T, h Harness) {
	for _, a := range Rates() {
		for _, larger := range []bucket.Spec{
			{Algorithm: a, Requests: 15, Period: time.Minute},
			{Algorithm: a, Requests: 10, Period: 30 * time.Second},
			{Algorithm: a, Requests: 60, Period: 90 * time.Second},
		} {
			old := NewLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: time.Minute})
			if a == bucket.FixedWindow && larger.Period > old.Period {
				continue
			}
			if a.IsBucket() {
				larger.Burst = max(larger.Requests, old.Burst)
			}
			large := NewLimit(t, larger)
			t.Run(describe(large), func(t *testing.T) {
				store, setClock := openAt(t, h)
				random := rand.New(rand.NewPCG(1, 2))
				clock := fullHour
				var admitted Admitted
				for clock < fullHour+(5*time.Minute).Microseconds() {
					setClock(clock)
					x := Hit([]*bucket.Limit{old, large}[random.IntN(2)], "x", 1+random.Int64N(2))
					if bucket.Allowed(Take(t, store, x)) {
						admitted.Add(clock, x.Cost)
					}
					clock += random.Int64N((3 * time.Second).Microseconds())
				}
				if err := admitted.Exceeds(large); err != nil {
					t.Error(err)
				}
				if len(admitted) == 0 {
					t.Error("nothing passed")
				}
			})
		}
	}
}
