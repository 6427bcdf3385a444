package bucket

import "time"

// A limit with a lease is decided so that what was granted may be used by Lease later, and
// still no span of time sees more than the limit says.
//
// What is used in a span of length t was granted in one of t + Lease. So a bucket holds
// back what drains meanwhile, its Leeway: to have its Capacity, a hit must leave room for
// it, and the debt of a hit on a bucket with less begins there. A sliding window or log
// counts a hit until it is a period old when it is used as late as it may be: its spans
// have the moments of the hits plus the Leeway. A fixed window stays as it is, since what
// is granted ends with its window.
//
// That the state, and not only the decision, knows of the lease makes it hold when the
// lease is dropped or becomes shorter, and when daemons differ in it: what was granted
// before is in the state as it may be used.

// leaseParts is how many leases there are at least in a window, or in the time in which a
// burst refills.
const leaseParts = 10

// longestLease returns the longest lease of otherwise valid numbers.
func (s *Spec) longestLease() time.Duration {
	whole := float64(s.Period)
	if s.Algorithm.IsBucket() && s.Burst != 0 && s.Requests != 0 {
		whole *= float64(s.Burst) / float64(s.Requests)
	}
	return time.Duration(min(whole/leaseParts, float64(MaxLease))).Truncate(MinPeriod)
}

// checkLease looks at the lease and what does not go with one.
func (s *Spec) checkLease(bad func(field string, found any, allowed string, args ...any)) {
	switch {
	case s.Lease == 0:
	case s.Algorithm == LeakyBucket || s.Algorithm == Concurrency:
		bad("lease", s.Lease, "no lease on a %s", s.Algorithm)
	case s.Postpaid != PostpaidNever:
		bad("lease", s.Lease, "no lease beside postpaid: %s", s.Postpaid)
	case s.BlockFor != 0:
		bad("lease", s.Lease, "no lease beside block_for, whose first denial nobody but the daemon knows")
	case s.Lease < MinPeriod || s.Lease > MaxLease || s.Lease%MinPeriod != 0:
		bad("lease", s.Lease, AllowedLease)
	case s.longestLease() == 0:
		bad("lease", s.Lease, "no lease here, since a tenth of a window or of the time in which a burst refills is less than %s", MinPeriod)
	case s.Lease > s.longestLease():
		bad("lease", s.Lease, "at most %s here, a tenth of a window or of the time in which a burst refills", s.longestLease())
	}
}

// leaseBucket holds back what drains from a bucket within its lease.
func (l *Limit) leaseBucket() error {
	if l.Lease == 0 {
		return nil
	}
	ticks := ceilDiv(l.Lease.Microseconds(), l.Quantum)
	l.Leeway, l.spare = ticks*l.Rate, ticks*l.Quantum
	l.Capacity -= ceilDiv(l.Leeway, l.Unit)
	if l.Capacity < 1 {
		return &SpecError{Field: "lease", Found: l.Lease.String(), Allowed: "no lease here, since nothing would remain of the burst"}
	}
	l.full = l.Capacity*l.Unit + l.Leeway
	return nil
}

// GoodFor returns for how long after its request was sent what a decision granted may be
// used: for the lease, and no longer than the window of a fixed_window. It is 0 without a
// lease.
func (l *Limit) GoodFor(d *Decision) time.Duration {
	if l.Lease != 0 && l.Algorithm == FixedWindow {
		return min(l.Lease, micros(l.windowEnd(d.At)-d.At))
	}
	return l.Lease
}
