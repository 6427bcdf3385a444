package bucket

import (
	"time"
	"unsafe"
)

// State is what a limit remembers about one key. The zero State remembers
// nothing: a full bucket, an empty window. It belongs to one algorithm; a
// limit's numbers may change under it.
type State struct {
	// Last is the moment of the last write. Whatever the clock says, only Mend
	// goes back to an earlier moment.
	Last int64
	// Expires is the moment from which the state counts as the zero State, under
	// the numbers of the last write. That of a concurrency counts nothing any more for
	// a hold before.
	Expires int64
	// Level is a bucket's debt in units of 1/Unit token, the count of a fixed
	// window, the sum of the counts of Spans, or how many of Holders had a slot right
	// after the last write.
	Level int64
	// Unit is how many units of Level make a token of a bucket.
	Unit int64
	// Spans are the slots of a sliding window or the stamps of a log, the oldest
	// first: from one to the next, neither First nor Last decreases.
	Spans []Span
	// Holders are those of a concurrency, or nil.
	Holders *Holders
}

// Span is a slot of a sliding window: Count was admitted from First to Last.
// A stamp of a sliding log has both equal.
type Span struct {
	First, Last int64
	Count       int64
}

// JoinNewest makes one span of the two newest; there must be two. The hits of
// both count until the later one ends. A store that has no room for another span calls
// it: the limit then errs on the safe side, as a sliding_window with longer slots does.
func (s *State) JoinNewest() {
	n := len(s.Spans)
	joined := &s.Spans[n-2]
	joined.Last = s.Spans[n-1].Last
	joined.Count += s.Spans[n-1].Count
	s.Spans = s.Spans[:n-1]
}

// Bytes returns about how many bytes the state takes besides the struct.
func (s *State) Bytes() int64 {
	return int64(cap(s.Spans))*int64(unsafe.Sizeof(Span{})) + s.Holders.bytes()
}

// Growth returns by at most how many bytes the state grows if a holder of this name
// takes a slot, once so many others have that are pending.
func (s *State) Growth(holder string, pending int64) int64 {
	return s.Holders.growth(holder, int(pending))
}

// clear makes a zero State that keeps the memory of Spans.
func (s *State) clear() { *s = State{Spans: s.Spans[:0]} }

// Never is the RetryAfter of a hit that waiting cannot allow: its cost exceeds the
// limit's capacity.
const Never time.Duration = -1

// Unknown is the RetryAfter of a denied hit that waiting may allow, but nobody knows
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

// MaxCost bounds what one hit can cost or refund. A larger cost counts as MaxCost,
// which exceeds the capacity of every limit.
const MaxCost = MaxRequests + 1

// Decision is what one limit says about one hit.
type Decision struct {
	// Remaining is the cost that could still be taken at once, rounded down.
	Remaining int64
	// RoomBefore is what remained before a hit that was denied and charged all the same:
	// less than its cost. Nothing remains after it. It is 0 in all other decisions.
	RoomBefore int64
	// RetryAfter is 0 for an allowed hit. Otherwise it is how long to wait
	// until the same hit is allowed, if nobody else takes, to the microsecond;
	// or Never, or Unknown.
	RetryAfter time.Duration
	// ResetAfter is how long until the limit is full again if left alone.
	ResetAfter time.Duration
	// Wait is how long a caller of a leaky_bucket holds this hit to get an
	// even stream: the time in which the hits before it drain. Where RetryAfter is
	// Unknown, it is FreeAtLatest.
	Wait time.Duration
	// At is the moment of the decision on the key's own clock, in microseconds
	// since the Unix epoch; a give-back needs it. It is 0 if the store had no room to
	// remember the hit, or denied it without looking at its state.
	At int64
	// Degraded marks a decision that was made without the limit's state.
	Degraded bool
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
// allowed even if nobody releases, as long as nobody renews or takes: until the first
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
