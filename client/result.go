package client

import (
	"sync/atomic"
	"time"
)

// Never stands in the place of a RetryAfter that no waiting can bring about:
// the cost is more than the limit's capacity.
const Never time.Duration = -1

// Result is the answer to a request.
type Result struct {
	// Allowed says whether all descriptors passed.
	Allowed bool
	// Limits are those that took part, in the order of the descriptors.
	Limits []Limited
	// DeniedBy is the index in Limits of the one that denied, of several the
	// one with the longest RetryAfter; -1 if none did.
	DeniedBy int
	// RetryAfter is how long to wait until the same request would be allowed,
	// if nobody else takes; Never if it cannot be. It is 0 if the request is
	// allowed, and where FailDeny denied, which knows of no time.
	RetryAfter time.Duration
	// Degraded says that some limit was decided without the state that all
	// daemons share.
	Degraded bool
	// Failure says why the daemon did not decide, and the client's choice did;
	// nil if the daemon decided.
	Failure error

	take        []byte // as it was sent
	local       *localTake
	isGivenBack atomic.Bool
}

// Denier returns the limit that denied, or nil.
func (r *Result) Denier() *Limited {
	if r.DeniedBy < 0 || r.DeniedBy >= len(r.Limits) {
		return nil
	}
	return &r.Limits[r.DeniedBy]
}

// Limited is what one limit says after a take.
type Limited struct {
	// Descriptor is the index of its descriptor in the request.
	Descriptor int
	// Name is that in the limits file; it may be empty.
	Name      string
	Algorithm Algorithm
	// Requests per Period.
	Requests uint32
	Period   time.Duration
	// Capacity is the most that can be taken at once.
	Capacity uint32
	// Remaining is what could still be taken at once, rounded down.
	Remaining uint32
	// Allowed says whether this limit allowed, whatever the others say.
	Allowed bool
	// RetryAfter is how long until it allows this cost, if nobody else takes,
	// to the microsecond; 0 if it allowed, Never if it cannot.
	RetryAfter time.Duration
	// ResetAfter is how long until it is full again if left alone.
	ResetAfter time.Duration
	// Wait is how long to hold the request for an even stream; LeakyBucket only.
	// The Client's Wait has held it.
	Wait time.Duration
	// Shadow says that it cannot deny the request: a limit in shadow mode.
	Shadow bool

	takenAt int64
	takenBy uint64
}

// isCharged reports whether there may be something to give back.
func (r *Result) isCharged() bool {
	if r.local != nil {
		return true
	}
	for i := range r.Limits {
		if r.Limits[i].takenAt != 0 {
			return true
		}
	}
	return false
}
