package bucket

import (
	"fmt"
)

// Share returns the limit that one of n daemons applies when each decides alone:
// requests and burst are divided by n and rounded down, but are at least 1 unless the
// limit denies always. It has no Lease. All else stays, including the key. Where the
// burst could not be counted exactly, or could not refill within MaxPeriod, it is
// smaller.
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
	s.Requests, s.Lease = max(1, l.Requests/n), 0
	if l.algorithm().hasBurst {
		s.Burst = min(max(1, l.Burst/n), maxToRefill(s.Requests, s.Period), maxToCount(s.Requests, s.Period))
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
