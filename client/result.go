package client

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Never is the RetryAfter of a request that cannot be allowed however long it
// waits: its cost is more than the limit's capacity.
const Never time.Duration = -1

// RetryUnknown is the RetryAfter of a request that may be allowed later, but no one knows
// when: a limit of requests in flight denied it, which has room when someone releases.
const RetryUnknown time.Duration = -2

// Result is the answer to a request.
type Result struct {
	// Allowed reports whether all descriptors passed.
	Allowed bool
	// Limits that took part, in the order of the descriptors.
	Limits []Limited
	// DeniedBy is the index in Limits of the limit that denied, or -1. If
	// several denied, it is the one with the longest RetryAfter.
	DeniedBy int
	// RetryAfter is the time until the same request would be allowed, if no one
	// else takes; Never if it cannot be allowed, RetryUnknown if no one knows. It is 0
	// if the request is allowed, and if FailDeny denied it.
	RetryAfter time.Duration
	// Degraded reports whether some limit was decided without the state that
	// all daemons share.
	Degraded bool
	// Leased reports whether the client decided by a lease, or by a denial that it may
	// repeat. The limits are then those of the daemon's answer, less what was used since.
	Leased bool
	// Failure is the reason why the client's choice decided and not the daemon;
	// nil if the daemon decided.
	Failure error

	client      *Client // nil in a Result that no Take has returned
	take        []byte  // the request as it was sent
	local       *localTake
	lease       leased
	granted     uint64        // units of each descriptor, if more than the cost
	goodFor     time.Duration // 0 if the request cannot be leased
	isGivenBack atomic.Bool
}

// Denier returns the limit that denied, or nil.
func (r *Result) Denier() *Limited {
	if r.DeniedBy < 0 || r.DeniedBy >= len(r.Limits) {
		return nil
	}
	return &r.Limits[r.DeniedBy]
}

// isCharged reports whether there may be a charge to give back.
func (r *Result) isCharged() bool {
	if r.local != nil || r.lease.from != nil {
		return true
	}
	for i := range r.Limits {
		if r.Limits[i].takenAt != 0 {
			return true
		}
	}
	return false
}

// Limited is the answer of one limit.
type Limited struct {
	// Descriptor is the index of its descriptor in the request.
	Descriptor int
	// Name of the limit in the limits file; may be empty.
	Name      string
	Algorithm Algorithm
	// Requests per Period. Of a limit by calendar that is how long the window is that is
	// now.
	Requests uint64
	Period   time.Duration
	// Calendar has the windows of a limit by calendar, and ResetAt is when the next one
	// begins. Both are zero for other limits; ResetAt also where no one knows.
	Calendar Calendar
	ResetAt  time.Time
	// Capacity is the most that can be taken at once.
	Capacity uint64
	// Remaining is how much can still be taken at once, rounded down.
	Remaining uint64
	// Allowed reports whether this limit allowed, whatever the others say.
	Allowed bool
	// RetryAfter is the time until this limit allows the cost, if no one else
	// takes, to the microsecond; 0 if it allowed, Never if it cannot, RetryUnknown if
	// no one knows.
	RetryAfter time.Duration
	// FreeAtLatest is, where RetryAfter is RetryUnknown, the time until it is allowed at
	// the latest, if no one renews or takes; 0 if that may be never.
	FreeAtLatest time.Duration
	// PausedFor is how long the pause lasts that began, by block_for, when a request went
	// over this limit; until then it denies every cost. It is 0 without one.
	PausedFor time.Duration
	// HeldFor is how long the request has its slot of a Concurrency if it is not heard
	// of again; 0 if it took none.
	HeldFor time.Duration
	// ResetAfter is the time until the limit is full again, if no one takes.
	ResetAfter time.Duration
	// Wait is how long to hold the request so that requests leave evenly; only
	// for LeakyBucket. Client.Wait has held it already.
	Wait time.Duration
	// Shadow reports whether the limit is in shadow mode: it cannot deny.
	Shadow bool

	takenAt int64
	takenBy uint64
}

// Calendar says which windows a limit by calendar has.
type Calendar struct {
	Unit CalendarUnit
	// TimeZone is a name of the IANA's.
	TimeZone string
	// Starts says where windows begin, as in a limits file; empty if that is the
	// beginning.
	Starts string
}

// CalendarUnit is the length of a window by calendar.
type CalendarUnit uint8

// The units.
const (
	CalendarHour    CalendarUnit = CalendarUnit(bucket.CalendarHour)
	CalendarDay     CalendarUnit = CalendarUnit(bucket.CalendarDay)
	CalendarWeek    CalendarUnit = CalendarUnit(bucket.CalendarWeek)
	CalendarMonth   CalendarUnit = CalendarUnit(bucket.CalendarMonth)
	CalendarQuarter CalendarUnit = CalendarUnit(bucket.CalendarQuarter)
	CalendarYear    CalendarUnit = CalendarUnit(bucket.CalendarYear)
)

// String returns the unit's spelling in a limits file.
func (u CalendarUnit) String() string { return bucket.CalendarUnit(u).String() }

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket   Algorithm = Algorithm(bucket.TokenBucket)
	GCRA          Algorithm = Algorithm(bucket.GCRA)
	LeakyBucket   Algorithm = Algorithm(bucket.LeakyBucket)
	FixedWindow   Algorithm = Algorithm(bucket.FixedWindow)
	SlidingWindow Algorithm = Algorithm(bucket.SlidingWindow)
	SlidingLog    Algorithm = Algorithm(bucket.SlidingLog)
	// Concurrency counts requests in flight: Requests is how many there may be, and
	// Period is the hold.
	Concurrency Algorithm = Algorithm(bucket.Concurrency)
)

// String returns the algorithm's spelling in a limits file.
func (a Algorithm) String() string { return bucket.Algorithm(a).String() }

// IsBucket reports whether the algorithm is TokenBucket, GCRA or LeakyBucket:
// these have a burst.
func (a Algorithm) IsBucket() bool { return bucket.Algorithm(a).IsBucket() }
