package lease

import (
	"math"
	"sync/atomic"
	"time"
)

// Instant is a moment on the two clocks of a machine, in nanoseconds: the monotonic one and
// the wall clock's. The first stands still while the machine is suspended, and the second
// may be set back, so a lease ends by either.
type Instant struct{ Mono, Wall int64 }

func (i Instant) plus(d time.Duration) Instant {
	return Instant{Mono: i.Mono + int64(d), Wall: i.Wall + int64(d)}
}

// isAfter reports whether one of the clocks has reached the end.
func (i Instant) isAfter(end Instant) bool { return i.Mono >= end.Mono || i.Wall >= end.Wall }

// endOf returns when a lease ends whose request was sent then: a hundredth early, since
// clocks differ in speed.
func endOf(sent Instant, goodFor time.Duration) Instant { return sent.plus(goodFor - goodFor/100) }

// Grant is units that the daemon has charged, to be used before the end. It does not
// change, except that units go.
type Grant[T any] struct {
	left atomic.Int64
	end  Instant
	// The next grant is asked for when no more units are left than low, or at soon.
	low, soon int64
	answer    T

	// Under the holding's mu.
	size int64  // with those that users gave back
	stop func() // of its timer
}

// Grants of fewer units are used up before the next is asked for: half of a small one
// would be asked for too often.
const largeGrant = 32

func newGrant[T any](units int64, a Ask, answer Answer[T]) *Grant[T] {
	g := &Grant[T]{end: endOf(a.Sent, answer.GoodFor), low: -1, soon: math.MaxInt64, answer: answer.Value, size: units}
	if units >= largeGrant {
		g.low, g.soon = units/3, a.Sent.Mono+int64(answer.GoodFor/8*7)
	}
	g.left.Store(units)
	return g
}

// take uses units, and returns how many are left then. It never takes below 0, not even
// for a moment, because what is left is swapped for 0 at the end.
func (g *Grant[T]) take(units int64, now Instant) (left int64, ok bool) {
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
func (g *Grant[T]) used() int64 {
	if g == nil {
		return 0
	}
	return g.size - g.left.Load()
}

// denial is an answer that is repeated to requests of as much or more: to those that come
// before its end, and to those that came before its own request was sent.
type denial[T any] struct {
	sent     int64 // on the monotonic clock
	end      Instant
	cost     int64
	received int64 // on the monotonic clock
	answer   T
}
