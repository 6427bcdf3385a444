package bucket

import (
	"time"
)

// Demand is what a hit asks of the state of its key; Hit.Demand makes it.
type Demand struct {
	// Cost is that of the hit.
	Cost int64
	// Holder is that of the hit.
	Holder string
	// Pending is how many hits before it in its group are about to hold a slot of the
	// same state.
	Pending int64
}

// Portion is a cost that was charged at the moment At of its key's own clock, and still is.
// At is 0 if nothing says how much of it still counts, so that nothing is given back.
type Portion struct{ At, Cost int64 }

// Never is the RetryAfter of a hit that waiting cannot allow: its cost exceeds the
// limit's capacity.
const Never time.Duration = -1

// Unknown is the RetryAfter of a denied hit that waiting may allow, but no one knows
// when: that depends on what others do, not on the time that passes.
const Unknown time.Duration = -2

// IsLonger compares two retry times. An unknown one is longer than all that are
// known, and Never is the longest.
func IsLonger(a, b time.Duration) bool {
	if isKnown := b >= 0; isKnown != (a >= 0) {
		return isKnown
	}
	return a > b
}

// Decision is what one limit says about one hit.
type Decision struct {
	// Remaining is the cost that could still be taken at once, rounded down.
	Remaining int64
	// RoomBefore is what remained before a hit that was denied and charged all the same:
	// less than its cost. Nothing remains after it. It is 0 in all other decisions.
	RoomBefore int64
	// RetryAfter is 0 for an allowed hit. Otherwise it is how long to wait
	// until the same hit is allowed, if no one else takes, to the microsecond;
	// or Never, or Unknown.
	RetryAfter time.Duration
	// ResetAfter is how long until the limit is full again if left alone.
	ResetAfter time.Duration
	// Wait is how long a caller of a leaky_bucket holds this hit to get an
	// even stream: the time in which the hits before it drain. Where RetryAfter is
	// Unknown, it is FreeAtLatest.
	Wait time.Duration
	// Paused is how long the pause of the key lasts that denies every cost; 0 without one.
	Paused time.Duration
	// At is the moment of the decision on the key's own clock, in microseconds
	// since the Unix epoch; a give-back needs it. It is 0 if the store had no room to
	// remember the hit, or denied it without looking at its state.
	At int64
	// Degraded marks a decision that was made without the limit's state.
	Degraded bool
	// PauseBegan says that this denial started the pause.
	PauseBegan bool
	// Released is what the release of a holder found, and Renewal whether a take renews a
	// slot; they are 0 in all other decisions.
	Released Released
	Renewal  Renewal
	// Ahead is by how many microseconds At is ahead of the store's clock, since a key with
	// holders has a moment for each write. It orders such decisions among others.
	Ahead uint32
	// RememberedAt is the moment at which a denial was repeated from memory, in
	// microseconds since the Unix epoch, on the key's own clock as far as it is known: by
	// the time that has passed since the clock was last heard of. It is 0 in all other
	// decisions.
	RememberedAt int64
	// Seq orders the decisions about one key that have equal At: the one with the
	// lower Seq was first. It is 0 where the store does not know; see Store.
	Seq uint32
	// Share is the number by which a fallback knows the share that it took
	// from; 0 in all other decisions.
	Share uint32
}

// Allowed reports whether the hit was allowed.
func (d Decision) Allowed() bool { return d.RetryAfter == 0 }

// FreeAtLatest is how long until a hit that was denied with an Unknown retry time is
// allowed even if no one releases, as long as no one renews or takes: until the first
// hold ends that makes room. It is 0 for all other hits, and for one of more holders in
// a request than there are slots.
func (d Decision) FreeAtLatest() time.Duration {
	if d.RetryAfter != Unknown {
		return 0
	}
	return d.Wait
}

// Released is what the release of a holder's slot found.
type Released uint8

// What a release finds.
const (
	// ReleasedNothing: the holder has no slot, and had none within the last hold.
	ReleasedNothing Released = iota
	// ReleasedSlot: the slot is free from now on.
	ReleasedSlot
	// ReleasedTooLate: the slot had lapsed before, not longer than a hold ago. A store
	// may forget that sooner if the hold has changed.
	ReleasedTooLate
)

// String returns its name, as in a label.
func (r Released) String() string {
	return [...]string{"nothing", "slot", "too_late"}[r]
}

// Renewal says whether a take that is allowed renews the slot of its holder.
type Renewal uint8

// Renewals.
const (
	// NotRenewed: the take has a new slot.
	NotRenewed Renewal = iota
	// Renewed: the holder has its slot already, so that there is nothing to give back.
	Renewed
	// RenewedSoon: it does, and was heard of within an eighth of its hold. Heartbeats are
	// rarer; if nearly all takes are like this, requests share a holder.
	RenewedSoon
)

// soonPart is the part of a hold within which a renewal is RenewedSoon.
const soonPart = 8

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// until returns the time from clock to the moment at, or to the moment expires if
// that comes first: an expired state holds nothing any more.
func until(clock, at, expires int64) time.Duration {
	return micros(min(at, expires) - clock)
}
