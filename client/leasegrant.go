package client

import (
	"math"
	"sync/atomic"
	"time"
)

// instant is a moment on the two clocks of this machine, in nanoseconds: the monotonic
// one, since the client was made, and the wall clock's. The first stands still while the
// machine is suspended, and the second may be set back, so a lease ends by either.
type instant struct{ mono, wall int64 }

func (i instant) plus(d time.Duration) instant {
	return instant{mono: i.mono + int64(d), wall: i.wall + int64(d)}
}

// isAfter reports whether one of the clocks has reached the end.
func (i instant) isAfter(end instant) bool { return i.mono >= end.mono || i.wall >= end.wall }

// endOf returns when a lease ends whose request was sent then: a hundredth early, since
// clocks differ in speed.
func endOf(sent instant, goodFor time.Duration) instant { return sent.plus(goodFor - goodFor/100) }

// grant is units that the daemon has charged, to be used before the end. It does not
// change, except that units go.
type grant struct {
	left atomic.Int64
	end  instant
	// The next grant is asked for when no more units are left than low, or at soon.
	low, soon int64
	limits    []Limited // of the answer

	// Under the holding's mu.
	size  int64 // with those that users gave back
	timer *time.Timer
}

// Grants of fewer units are used up before the next is asked for: half of a small one
// would be asked for too often.
const largeGrant = 32

func newGrant(units int64, a leaseAsk, answer *Result) *grant {
	g := &grant{end: endOf(a.sent, answer.goodFor), low: -1, soon: math.MaxInt64, limits: copyLimits(answer.Limits, 0, 0), size: units}
	if units >= largeGrant {
		g.low, g.soon = units/3, a.sent.mono+int64(answer.goodFor/8*7)
	}
	g.left.Store(units)
	return g
}

// take uses units, and returns how many are left then. It never takes below 0, not even
// for a moment, because what is left is swapped for 0 at the end.
func (g *grant) take(units int64, now instant) (left int64, ok bool) {
	if now.isAfter(g.end) {
		return 0, false
	}
	for {
		left = g.left.Load()
		if left < units {
			return 0, false
		}
		if g.left.CompareAndSwap(left, left-units) {
			return left - units, true
		}
	}
}

// used returns how many units were used. The holding's mu is held.
func (g *grant) used() int64 {
	if g == nil {
		return 0
	}
	return g.size - g.left.Load()
}

// denial is an answer that is repeated to requests of as much or more.
type denial struct {
	end      instant
	cost     int64
	received int64 // on the monotonic clock
	answer   Result
}

// fill makes a result of the answer, as it is now.
func (d *denial) fill(r *Result, now instant) {
	after := time.Duration(max(0, now.mono-d.received))
	*r = Result{DeniedBy: d.answer.DeniedBy, RetryAfter: d.answer.RetryAfter, Limits: copyLimits(d.answer.Limits, 0, after), Leased: true}
	if r.RetryAfter > 0 {
		r.RetryAfter = max(time.Microsecond, r.RetryAfter-after)
	}
}
