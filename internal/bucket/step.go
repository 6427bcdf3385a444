package bucket

import (
	"time"
)

// Decide returns what a hit gets when the store's clock is at clock, in microseconds
// since the Unix epoch. It changes nothing.
//
// A cost of 0 peeks: it is allowed when a cost of 1 would be. A negative cost
// refunds and is always allowed. Where use is charged, Charging says what a hit
// needs.
func (l *Limit) Decide(s *State, clock int64, demand Demand) Decision {
	if !l.looksAtState() {
		d := Decision{At: clock}
		if end := l.algorithm().periodEnd; end != nil {
			// A caller that waits for the reset must not ask again at once.
			d.ResetAfter = micros(end(l, clock) - clock)
		}
		if demand.Cost >= 0 {
			d.RetryAfter = Never
		}
		return d
	}
	d := l.algorithm().decide(l, s, clock, demand)
	if l.BlockFor > 0 {
		s.Pause.deny(clock, demand.Cost, &d)
	}
	return d
}

// looksAtState reports whether the state of a key matters to the limit. One of 0 denies
// always; but what is held since it was more may be released.
func (l *Limit) looksAtState() bool { return l.Requests > 0 || l.algorithm().hasHolders }

// noState is the zero State, which no one writes.
var noState State

// DecideFirst is Decide on a key that has no state.
func (l *Limit) DecideFirst(clock int64, demand Demand) Decision {
	return l.Decide(&noState, clock, demand)
}

// Charge writes a hit into the state. d is what Decide returned for the
// hit; Charge returns it with the numbers after the hit. The hit must be allowed,
// or ChargedAnyway. A refund that finds nothing to give back writes nothing.
func (l *Limit) Charge(s *State, clock int64, demand Demand, d Decision) Decision {
	if !l.looksAtState() || demand.Cost == 0 {
		return d
	}
	if !l.charge(s, clock, demand) {
		return d
	}
	if d.RetryAfter != 0 {
		d.RoomBefore = d.Remaining
		// The charge of what was used has moved the moment from which a peek is
		// allowed again. A level that can grow no further may not show it.
		if retry := l.Decide(s, clock, Demand{}).RetryAfter; retry != 0 {
			d.RetryAfter = retry
		}
	}
	if demand.Cost > 0 && d.At != 0 && l.algorithm().hasHolders {
		d.At = s.Last // later than at the decision, if another hit of the group wrote since
		d.Ahead = uint32(d.At - clock)
	}
	d.Remaining, d.ResetAfter = l.written(s, clock)
	if l.BlockFor > 0 {
		s.Pause.deny(clock, demand.Cost, &d)
	}
	return d
}

// charge is that of the algorithm. After a pause it lets the next denial start another.
func (l *Limit) charge(s *State, clock int64, demand Demand) (wrote bool) {
	if demand.Cost > 0 && clock >= s.Pause.Until {
		s.Pause = Pause{}
	}
	return l.algorithm().charge(l, s, clock, demand)
}

// written returns what remains by a state that was just written, and how long
// until all of the capacity does.
func (l *Limit) written(s *State, clock int64) (remaining int64, reset time.Duration) {
	if l.algorithm().hasHolders { // their state is kept for longer
		return l.algorithm().remaining(l, s), micros(s.heldFor())
	}
	if remaining = l.algorithm().remaining(l, s); remaining == l.Capacity {
		return remaining, 0
	}
	return remaining, micros(s.Expires - l.spare - clock)
}

// GiveBack takes out of the state what a hit, decided at the moment at, still
// counts for, and never more: it does not fill a limit beyond its capacity,
// and does not reach into another window. Of a group all states are mended before the
// first hit is given back.
func (l *Limit) GiveBack(s *State, clock, at int64, demand Demand) {
	if l.Requests == 0 || demand.Cost <= 0 {
		return
	}
	l.algorithm().giveBack(l, s, clock, demand, Portion{At: at, Cost: demand.Cost}, nil)
}

// ChargedAnyway reports whether a hit of cost is charged even if its group is
// denied: what was used already, and the release of a holder.
func (l *Limit) ChargedAnyway(cost int64) bool {
	if cost < 0 {
		return l.algorithm().hasHolders
	}
	return l.Charging() != ChargesAdmitted && cost > 0 && l.Requests > 0
}

// DefaultMaxClockSkew is the most by which right clocks differ, such as those of a
// master and of the replica that takes its place.
const DefaultMaxClockSkew = 10 * time.Second

// Mend repairs a state that a wrong clock wrote: one whose last moment lies further ahead
// of clock than skew, in microseconds. A clock that steps leaves such states behind: NTP
// sets it, a machine is resumed, a master with a wrong clock is replaced. Mend reports
// whether it changed the state. A store mends a state before it decides, and keeps it
// mended even if nothing is charged.
//
// The state goes on from clock with what it says was used:
//
//   - a bucket has at clock the debt that it had at its last moment,
//   - a fixed window's count goes on in the window that contains clock,
//   - spans of a sliding window or log that lie ahead are moved to clock; spans
//     in the past stay there,
//   - a holder that had a slot of a concurrency at the last moment holds it at clock, at most
//     as long as one who takes at clock,
//   - a pause that began ahead of clock begins at clock.
//
// So nothing is given away when the clock comes back: all that counted at the
// state's last moment counts at clock, and for as long as a hit at clock does. But
// a state that expired because the clock jumped ahead is lost: a store cannot tell
// a jump from time that passes, and Redis drops such keys by itself.
//
// A state that was mended, or was written at the same clock, needs no mending by
// this limit. The exception is a concurrency, whose moments run ahead of the clock by
// a microsecond for each write.
func (l *Limit) Mend(s *State, clock, skew int64) bool {
	if s.Last-clock <= skew && s.Pause.Began-clock <= skew || !l.looksAtState() {
		return false
	}
	mended := l.BlockFor > 0 && s.Pause.mend(clock, skew)
	if s.Last-clock > skew && l.algorithm().mend(l, s, clock, skew) {
		l.dropPause(s)
		mended = true
	}
	return mended
}
