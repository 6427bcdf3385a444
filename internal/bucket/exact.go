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

// nearestRequests returns the largest requests up to these, and the smallest from these
// on, with which a burst counts exactly and refills within MaxPeriod; 0 if there are none.
// A burst of 0 is as large as the requests.
func nearestRequests(requests, burst int64, period time.Duration) (lower, higher int64) {
	ticks, least := coarsestTicks(period), minToRefill(burst, period)
	for _, g := range divisors(ticks) {
		// If g divides the requests, a token has at most ticks/g units.
		top := maxLevel / (ticks / g)
		if burst > top {
			continue
		}
		if burst > 0 {
			top = MaxRequests
		}
		top -= top % g
		if down := min(requests-requests%g, top); down >= least {
			lower = max(lower, down)
		}
		if up := max(ceilDiv(requests, g), ceilDiv(least, g)) * g; up <= top && (higher == 0 || up < higher) {
			higher = up
		}
	}
	return lower, higher
}

// minToRefill is the smallest number of requests with which a burst refills within
// MaxPeriod; at least 1.
func minToRefill(burst int64, period time.Duration) int64 {
	low, high := int64(1), max(1, burst) // as many as the burst refill it in a period
	for low < high {
		if middle := low + (high-low)/2; burst <= maxToRefill(middle, period) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
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

// maxTried bounds the factors that divisors looks for. Its square is more than the
// seconds of MaxPeriod: only a longer period in odd milliseconds may have divisors that
// are not found, and callers choose periods too, so that a search for all costs too much.
const maxTried = 5650

// divisors returns the divisors of n, in no order: all of them if n is at most maxTried
// squared. In a larger n, what is left after all factors up to maxTried counts as a prime.
func divisors(n int64) []int64 {
	all := []int64{1}
	multiply := func(prime int64, times int) {
		before := len(all)
		for range times {
			for _, d := range all[len(all)-before:] {
				all = append(all, d*prime)
			}
		}
	}
	for p := int64(2); p <= maxTried && p*p <= n; p++ {
		times := 0
		for ; n%p == 0; n /= p {
			times++
		}
		multiply(p, times)
	}
	if n > 1 {
		multiply(n, 1)
	}
	return all
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv returns a / b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
