package bucket

import "time"

// Decide returns what a hit of cost gets when the store's clock is at clock, in
// microseconds since the Unix epoch. It changes nothing.
//
// A cost of 0 peeks: it is allowed when a cost of 1 would be. A negative cost
// refunds and is always allowed. Where use is charged, Charging says what a hit
// needs.
func (l *Limit) Decide(s *State, clock, cost int64) Decision {
	switch {
	case l.Requests == 0:
		d := Decision{At: clock}
		if l.Algorithm == FixedWindow {
			// Whoever waits for the reset is not to ask again at once.
			d.ResetAfter = micros(l.windowEnd(clock) - clock)
		}
		if cost >= 0 {
			d.RetryAfter = Never
		}
		return d
	case l.Algorithm.IsBucket():
		return l.decideBucket(s, clock, cost)
	case l.Algorithm == FixedWindow:
		return l.decideFixedWindow(s, clock, cost)
	default:
		return l.decideSliding(s, clock, cost)
	}
}

// Charge writes a hit of cost into the state. d is what Decide returned for the
// hit; Charge returns it with the numbers after the hit. The hit must be allowed,
// or ChargedAnyway. A refund that finds nothing to give back writes nothing.
func (l *Limit) Charge(s *State, clock, cost int64, d Decision) Decision {
	if l.Requests == 0 || cost == 0 {
		return d
	}
	wrote := false
	switch {
	case l.Algorithm.IsBucket():
		wrote = l.chargeBucket(s, clock, cost)
	case l.Algorithm == FixedWindow:
		wrote = l.chargeFixedWindow(s, clock, cost)
	default:
		wrote = l.chargeSliding(s, clock, cost)
	}
	if !wrote {
		return d
	}
	if d.RetryAfter != 0 {
		d.RoomBefore = d.Remaining
		// The charge of what was used has moved the moment from which a peek is
		// allowed again. A level that can grow no further may not show it.
		if retry := l.Decide(s, clock, 0).RetryAfter; retry != 0 {
			d.RetryAfter = retry
		}
	}
	d.Remaining, d.ResetAfter = l.written(s, clock)
	return d
}

// written returns what remains by a state that was just written, and how long
// until all of the capacity does.
func (l *Limit) written(s *State, clock int64) (remaining int64, reset time.Duration) {
	if s.Expires == 0 {
		return l.Capacity, 0
	}
	reset = micros(s.Expires - clock)
	if l.Algorithm.IsBucket() {
		return max(0, l.full-s.Level) / l.Unit, reset
	}
	return max(0, l.Capacity-s.Level), reset
}

// GiveBack takes out of the state what a hit of cost, decided at the moment at,
// still counts for, and never more: it does not fill a limit beyond its capacity,
// and does not reach into another window.
func (l *Limit) GiveBack(s *State, clock, at, cost int64) {
	if l.Requests == 0 || cost <= 0 {
		return
	}
	switch {
	case l.Algorithm.IsBucket():
		l.giveBackBucket(s, clock, at, cost)
	case l.Algorithm == FixedWindow:
		l.giveBackFixedWindow(s, clock, at, cost)
	default:
		l.giveBackSliding(s, clock, at, cost)
	}
}

// ChargedAnyway reports whether a hit of cost is charged even if its group is
// denied.
func (l *Limit) ChargedAnyway(cost int64) bool {
	return l.Charging() != ChargesAdmitted && cost > 0 && l.Requests > 0
}

// Charging returns how the limit is charged.
func (l *Limit) Charging() Charging {
	switch {
	case l.Postpaid == PostpaidAlways:
		return ChargesUse
	case l.isReported:
		return ChargesReported
	default:
		return ChargesAdmitted
	}
}

// claim returns how much of the capacity must be free for a hit of a cost that is
// no refund.
func (l *Limit) claim(cost int64) int64 {
	switch l.Charging() {
	case ChargesUse:
		return 1
	case ChargesReported:
		return cost
	default:
		return max(1, cost)
	}
}

// until returns the time from clock to the moment at, or to the moment expires if
// that comes first: an expired state holds nothing any more.
func until(clock, at, expires int64) time.Duration {
	return micros(min(at, expires) - clock)
}
