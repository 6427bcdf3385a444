package client

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Stats are counts since the client was made.
type Stats struct {
	// Allowed and Denied requests, as the daemon decided.
	Allowed, Denied uint64
	// Requests that the daemon did not decide, by the choice that decided them.
	FailedAllowed, FailedDenied, FailedLocal, FailedError uint64
	// LostGiveBacks counts give-backs that failed or may have failed.
	LostGiveBacks uint64
	// LostSettlements counts settlements that failed or may have failed.
	LostSettlements uint64
	// LostReleases counts releases of slots that failed or may have failed: these slots
	// lapse.
	LostReleases uint64
	// Leases counts what the daemon granted, Leased the units that were used of it, and
	// LeaseReturned those that were given back. LeasedDenied counts requests that were
	// denied without asking.
	Leases, Leased, LeaseReturned, LeasedDenied uint64
	// Streams is how many streams are open now.
	Streams int
	// Alone counts requests that were sent in calls of their own.
	Alone uint64
}

// Failed returns how many requests the daemon did not decide.
func (s Stats) Failed() uint64 {
	return s.FailedAllowed + s.FailedDenied + s.FailedLocal + s.FailedError
}

type stats struct {
	allowed, denied                                       atomic.Uint64
	failedAllowed, failedDenied, failedLocal, failedError atomic.Uint64
	lostGiveBacks, lostSettlements, lostReleases          atomic.Uint64
	leases, leaseReturned                                 atomic.Uint64
	leased, leasedDenied                                  atomic.Uint64 // of holdings that were dropped
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	s := Stats{
		Allowed:         c.stats.allowed.Load(),
		Denied:          c.stats.denied.Load(),
		FailedAllowed:   c.stats.failedAllowed.Load(),
		FailedDenied:    c.stats.failedDenied.Load(),
		FailedLocal:     c.stats.failedLocal.Load(),
		FailedError:     c.stats.failedError.Load(),
		LostGiveBacks:   c.stats.lostGiveBacks.Load(),
		LostSettlements: c.stats.lostSettlements.Load(),
		LostReleases:    c.stats.lostReleases.Load(),
		Leases:          c.stats.leases.Load(),
		Leased:          c.stats.leased.Load(),
		LeaseReturned:   c.stats.leaseReturned.Load(),
		LeasedDenied:    c.stats.leasedDenied.Load(),
		Streams:         c.pool.Streams(),
		Alone:           c.pool.Alone(),
	}
	c.leases.each(func(h *holding) {
		units, denied := h.Counts()
		s.Leased += units
		s.LeasedDenied += denied
	})
	return s
}

// outage remembers whether failures have begun, so that the log says when they
// begin and end, at most once in logEvery.
type outage struct {
	is     atomic.Bool
	logged atomic.Int64 // nanoseconds since the client was made
}

const logEvery = 10 * time.Second

// noteFailure logs the first failure after an answer.
func (c *Client) noteFailure(choice Failure, cause error) {
	if c.outage.is.Load() {
		return
	}
	now, last := int64(time.Since(c.made)), c.outage.logged.Load()
	if last != 0 && now-last < int64(logEvery) {
		return
	}
	if c.outage.logged.CompareAndSwap(last, now) {
		c.outage.is.Store(true)
		c.options.logger.Warn("no answer from ratelimitd", slog.String("deciding", choice.String()), slog.Any("error", cause))
	}
}

// noteAnswer logs the end of failures.
func (c *Client) noteAnswer() {
	if c.outage.is.Load() && c.outage.is.CompareAndSwap(true, false) {
		c.options.logger.Info("ratelimitd answers again")
	}
}
