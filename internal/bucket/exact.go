package bucket

import (
	"math"
	"math/bits"
	"time"
)

// quanta are the possible ticks of buckets in microseconds, the finest first.
var quanta = [...]int64{1, 1e3, 1e6, 60e6}

// A bucket counts exactly if its burst is at most maxLevel units in some quantum. In the
// coarsest quantum that divides the period a token has the fewest units, so that one
// decides. With t such ticks in a period, a token has t/gcd(requests, t) of them: the more
// the requests and the period have in common, the larger the burst may be.

// coarsestTicks is how many ticks a period has in the coarsest quantum that divides it.
func coarsestTicks(period time.Duration) int64 {
	ticks := period.Microseconds()
	for _, q := range quanta {
		if period.Microseconds()%q == 0 {
			ticks = period.Microseconds() / q
		}
	}
	return ticks
}

// maxToCount is the largest burst that counts exactly. It is at least 142,418, for a
// period just under MaxPeriod in odd milliseconds.
func maxToCount(requests int64, period time.Duration) int64 {
	ticks := coarsestTicks(period)
	return maxLevel / (ticks / gcd(requests, ticks))
}

// maxToRefill is the largest burst that refills within MaxPeriod; at least 1,
// for requests of at least 1.
func maxToRefill(requests int64, period time.Duration) int64 {
	ms := uint64(period.Milliseconds())
	// The product has up to 87 bits.
	hi, lo := bits.Mul64(uint64(requests), uint64(MaxPeriod.Milliseconds()))
	if hi >= ms {
		return math.MaxInt64
	}
	maxBurst, _ := bits.Div64(hi, lo, ms)
	return int64(min(maxBurst, math.MaxInt64))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv returns a / b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
