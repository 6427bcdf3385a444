package bucket

import (
	"time"
)

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
//   - whoever held a slot of a concurrency at the last moment holds it at clock, at most
//     as long as one who takes at clock.
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
	if s.Last-clock <= skew || !l.looksAtState() {
		return false
	}
	return l.algorithm().mend(l, s, clock, skew)
}
