package bucket

import "time"

// DefaultMaxClockSkew is the most by which right clocks differ, such as those of a
// master and of the replica that takes its place.
const DefaultMaxClockSkew = 10 * time.Second

// Mend puts a state in order that a wrong clock wrote: its last moment lies further
// ahead of clock than skew, in microseconds. A clock that steps leaves such states
// behind: NTP sets it, a machine is resumed, a master with a wrong clock is
// replaced. Mend reports whether it changed the state. A store mends a state
// before it decides, and keeps it mended even if nothing is charged.
//
// The state goes on from clock with what it says was used:
//
//   - a bucket has at clock the debt that it had at its last moment,
//   - a fixed window's count goes on in the window that contains clock,
//   - spans of a sliding window or log that lie ahead are moved to clock; spans
//     in the past stay there.
//
// So nothing is given away when the clock comes back: all that counted at the
// state's last moment counts at clock, and for as long as a hit at clock does. But
// a state that expired because the clock jumped ahead is lost: a store cannot tell
// a jump from time that passes, and Redis drops such keys by itself.
//
// A state that was mended, or was written at the same clock, needs no mending by
// this limit.
func (l *Limit) Mend(s *State, clock, skew int64) bool {
	return s.Last-clock > skew && l.mend(s, clock, skew)
}

func (l *Limit) mend(s *State, clock, skew int64) bool {
	switch {
	case l.Requests == 0:
		return false // the limit does not look at its state
	case l.Algorithm.IsBucket():
		// New numbers have moved the last moment to the end of their quantum.
		if last := ceilDiv(s.Last, l.Quantum) * l.Quantum; last-clock < skew+l.Quantum {
			return false
		}
		s.Expires -= s.Last - clock
	case l.Algorithm == FixedWindow:
		s.Expires = l.windowEnd(clock)
	default:
		s.Expires -= max(0, s.Spans[len(s.Spans)-1].Last-clock)
		for i := range s.Spans {
			span := &s.Spans[i]
			span.First, span.Last = min(span.First, clock), min(span.Last, clock)
		}
	}
	s.Last = clock
	return true
}
