package turns

import (
	"slices"
	"time"
)

// line is a line of waiters. It reads no clock: the time is passed in. Lines.mu
// guards it.
//
// Some waiters have the turn: they ask, or sleep until they do. The others wait for it. A
// line exists as long as a waiter has the turn. If several have it, answers said that
// there was room for all of them.
type line struct {
	key     string
	turns   int // how many have the turn
	joined  uint64
	waiting []*waiter // in the order in which they came

	// next is when the sleeping waiter will ask; zero if none sleeps.
	next time.Time
	// descriptor, tokenTime and drained are those of the limit that denied that waiter;
	// drained is the time until which its request would be held, if the limit holds
	// requests, and zero otherwise.
	descriptor int
	tokenTime  time.Duration
	drained    time.Time
	// taken is what that waiter takes from the limit, and left is how many tokens will be
	// there after it.
	taken, left float64
}

// waiter is a request that stands in a line or has the turn.
type waiter struct {
	number      uint64 // its place in the line
	costs       Costs
	deadline    time.Time
	hasDeadline bool
	stoodInLine bool       // and has not slept since
	turn        chan error // gets nil when it is the waiter's turn
}

// cost returns how many tokens the waiter takes from a limit of a descriptor, and how
// many must be there: a peek takes none.
func (w *waiter) cost(descriptor int) (taken, needed float64) {
	taken = float64(w.costs.Of(descriptor))
	return taken, max(1, taken)
}

func (w *waiter) isLate(at time.Time) bool { return w.hasDeadline && at.After(w.deadline) }

// isTooLate reports whether a waiter that was denied would leave too late. A limit
// that holds requests would hold it until all that was taken before has left.
func (w *waiter) isTooLate(now time.Time, denial *Answer) bool {
	wait := denial.RetryAfter
	if w.costs.Of(denial.Descriptor) > 0 {
		wait = max(wait, denial.Drain)
	}
	return w.isLate(now.Add(wait))
}

// join puts a waiter at the end. It returns false if its turn would come too late.
func (l *line) join(w *waiter) bool {
	l.joined++
	w.number = l.joined
	l.waiting = append(l.waiting, w)
	l.dismiss()
	return len(l.waiting) > 0 && l.waiting[len(l.waiting)-1] == w
}

// leave removes a waiter. It returns false if the waiter no longer waits.
func (l *line) leave(w *waiter) bool {
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// dismiss removes the waiters whose turn would come too late, and returns an error to them.
func (l *line) dismiss() {
	if l.next.IsZero() {
		return
	}
	ahead := 0.0 // what those before a waiter take
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		taken, needed := w.cost(l.descriptor)
		isLate := w.isLate(l.after(l.next, ahead-l.left+needed))
		if taken > 0 && !l.drained.IsZero() {
			isLate = isLate || w.isLate(l.after(l.drained, l.taken+ahead))
		}
		if isLate {
			w.turn <- ErrTooLate
			return true
		}
		ahead += taken
		return false
	})
}

// after returns the time at which this many tokens will have come since at. Costs are
// unbounded: a wait of more than a century becomes one of a century.
func (l *line) after(at time.Time, tokens float64) time.Time {
	const century = float64(100 * 365 * 24 * time.Hour)
	return at.Add(time.Duration(min(tokens*float64(l.tokenTime), century)))
}

// handOn ends a turn. It gives turns to the first waiters, until this many have one.
func (l *line) handOn(more int) {
	l.turns--
	l.next = time.Time{}
	for len(l.waiting) > 0 && l.turns < more {
		l.waiting[0].turn <- nil
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.turns++
	}
}

// keepTurn reports whether a waiter that was denied just now keeps the turn. If others
// have the turn too, it goes back to its place in the line, so that not all of them
// sleep until the same moment.
func (l *line) keepTurn(w *waiter, now time.Time, denial *Answer) bool {
	if l.turns > 1 {
		l.turns--
		i, _ := slices.BinarySearchFunc(l.waiting, w.number, func(other *waiter, number uint64) int {
			return int(int64(other.number) - int64(number))
		})
		l.waiting = slices.Insert(l.waiting, i, w)
		return false
	}
	l.next, l.tokenTime, l.descriptor = now.Add(denial.RetryAfter), denial.TokenTime, denial.Descriptor
	l.drained = time.Time{}
	if denial.Drain > 0 {
		l.drained = now.Add(denial.Drain)
	}
	taken, needed := w.cost(l.descriptor)
	l.taken, l.left = taken, needed-taken
	l.dismiss()
	return true
}
