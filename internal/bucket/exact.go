package bucket

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

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

// Exact returns a bucket's spec with as many requests, or as few more as it can count
// exactly; with fewer if it cannot count so many. A burst that is as large as the requests
// stays so. A spec that needs no change, or that no change of its requests helps, is
// returned as it is.
func (s Spec) Exact() Spec {
	if _, err := NewLimit(s); err == nil || !s.Algorithm.IsBucket() || s.check() != nil {
		return s
	}
	burst := s.Burst
	if burst == s.Requests {
		burst = 0
	}
	lower, higher := nearestRequests(s.Requests, burst, s.Period)
	if requests := cmp.Or(higher, lower); requests > 0 {
		s.Requests, s.Burst = requests, burst
	}
	return s
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

// inexact says which numbers would do in place of those of a bucket that cannot be counted
// exactly. hasBurst is whether its burst is not just as large as its requests.
func (l *Limit) inexact(hasBurst bool) *SpecError {
	e := &SpecError{
		Field: "requests",
		Found: fmt.Sprintf("%d in %s, which a %s cannot count exactly", l.Requests, l.Period, l.Algorithm),
	}
	var instead []string
	burst := int64(0)
	if hasBurst {
		burst = l.Burst
		e.Field = "burst"
		e.Found = fmt.Sprintf("%d beside %d requests in %s, which a %s cannot count exactly", l.Burst, l.Requests, l.Period, l.Algorithm)
		instead = append(instead, fmt.Sprintf("at most %d here", maxToCount(l.Requests, l.Period)))
	}
	lower, higher := nearestRequests(l.Requests, burst, l.Period)
	for _, n := range [...]int64{lower, higher} {
		if n > 0 {
			instead = append(instead, fmt.Sprintf("%d requests", n))
		}
	}
	if whole := l.Period.Truncate(time.Minute); whole != l.Period && whole > 0 && l.Burst <= maxToCount(l.Requests, whole) {
		instead = append(instead, fmt.Sprintf("a period of %s", whole))
	}
	e.Allowed = strings.Join(append(instead, fmt.Sprintf("a %s, which counts every number", FixedWindow)), ", or ")
	return e
}
