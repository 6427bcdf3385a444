package bucket

import (
	"fmt"
)

// Share returns the limit that one of n daemons applies when each decides alone:
// requests and burst are divided by n and rounded down, but are at least 1 unless the
// limit denies always. All else stays, including the key. Where the rounded numbers could
// not be counted exactly, or the burst could not refill within MaxPeriod, they are smaller.
// If n is at most 1, the share is the limit itself.
//
// All n together admit no more than the limit, except where the limit is less than
// n. The limit keeps its last share, so that a second call for the same n does not
// allocate.
func (l *Limit) Share(n int) *Limit {
	if n <= 1 || l.Requests == 0 {
		return l
	}
	if s := l.share.Load(); s != nil && s.n == n {
		return s.limit
	}
	s := &share{n, l.divide(int64(n))}
	l.share.Store(s)
	return s.limit
}

func (l *Limit) divide(n int64) *Limit {
	s := l.Spec
	s.Requests = max(1, l.Requests/n)
	if l.algorithm().hasBurst {
		s.Burst = max(1, l.Burst/n)
		s.makeCountable()
	}
	divided, err := NewLimit(s)
	if err != nil {
		// Each number is within the bounds of the limit's own number, and the
		// burst within the two bounds that the others set.
		panic(fmt.Sprintf("bucket: the share of %+v among %d is no limit: %v", l.Spec, n, err))
	}
	divided.suffix, divided.isReported = l.suffix, l.isReported
	return divided
}

// makeCountable makes the burst of a bucket smaller if it could not refill in time; and if
// it could not be counted exactly then, the burst or the requests or both, so that most is
// kept of that of which least is.
func (s *Spec) makeCountable() {
	s.Burst = min(s.Burst, maxToRefill(s.Requests, s.Period))
	if s.Burst <= maxToCount(s.Requests, s.Period) {
		return
	}
	asked, most := *s, 0.0
	withBurst, _ := nearestRequests(asked.Requests, asked.Burst, asked.Period)
	alone, _ := nearestRequests(asked.Requests, 0, asked.Period)
	for _, requests := range [...]int64{asked.Requests, withBurst, alone} {
		if requests == 0 {
			continue // there are none
		}
		burst := min(asked.Burst, maxToRefill(requests, asked.Period), maxToCount(requests, asked.Period))
		kept := min(float64(requests)/float64(asked.Requests), float64(burst)/float64(asked.Burst))
		if kept > most {
			most, s.Requests, s.Burst = kept, requests, burst
		}
	}
}
