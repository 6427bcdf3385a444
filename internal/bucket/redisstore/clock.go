package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// quietOffset is how far a node's clock may be from this machine's before the
// log is told.
const quietOffset = time.Second

// clockWatch knows how far a node's clock is from this machine's. Limits do not
// depend on it: they live on the node's clock alone. But it says which nodes
// will step, be it by NTP or by a failover.
type clockWatch struct {
	known  atomic.Bool
	offset atomic.Int64 // a time.Duration: the node's clock less this machine's

	lines         logthin.Thinner
	isLoggedWrong atomic.Bool // whether the last line says that the clock is wrong
}

// saw is told what the node's clock said at a moment between start and as long
// as took later. It reports whether the log is to be told that it is wrong, or
// that it is right again.
func (w *clockWatch) saw(clock time.Time, start time.Time, took time.Duration) (offset time.Duration, wrong, right bool) {
	slack := took / 2
	offset = clock.Sub(start.Add(slack))
	w.offset.Store(int64(offset))
	w.known.Store(true)
	switch off := offset.Abs(); {
	case off-slack > quietOffset:
		if _, wrong = w.lines.Due(start, nodeLogEvery); wrong {
			w.isLoggedWrong.Store(true)
		}
	case off+slack <= quietOffset && w.isLoggedWrong.Load():
		right = w.isLoggedWrong.CompareAndSwap(true, false)
	}
	return offset, wrong, right
}

// sawClock is told what a node's clock said during a call that began at start
// and took as long.
func (s *Store) sawClock(n *node, clock time.Time, start time.Time, took time.Duration) {
	offset, wrong, right := n.clock.saw(clock, start, took)
	switch {
	case wrong:
		s.log.Warn("redis: the node's clock is not this machine's: one of the two is wrong", "node", n.name(), "ahead", offset.String())
	case right:
		s.log.Info("redis: the node's clock is this machine's again", "node", n.name())
	}
}
