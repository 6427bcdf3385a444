package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// quietOffset is how far a node's clock may be from this machine's before it is
// logged.
const quietOffset = time.Second

// clockWatch knows how far a node's clock is from this machine's. No limit
// depends on it, since limits count on the node's clock alone. But it shows
// which nodes' clocks will step when NTP corrects them, or at a failover.
type clockWatch struct {
	known  atomic.Bool
	offset atomic.Int64 // a time.Duration: the node's clock less this machine's

	lines         logthin.Thinner
	isLoggedWrong atomic.Bool // whether the last line says that the clock is wrong
}

// record notes the node's clock at some moment between start and took after it. It
// reports whether to log that it is wrong, or that it is right again.
func (w *clockWatch) record(clock time.Time, start time.Time, took time.Duration) (offset time.Duration, wrong, right bool) {
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

// recordClock notes what a node's clock was during a command that was sent at
// start, and whose reply took that long.
func (s *Store) recordClock(n *node, clock time.Time, start time.Time, took time.Duration) {
	offset, wrong, right := n.clock.record(clock, start, took)
	direction := "ahead"
	if offset < 0 {
		direction = "behind"
	}
	switch {
	case wrong:
		s.log.Warn("redis: the node's clock is not this machine's: one of the two is wrong", "node", n.name(), direction, timespan.Format(offset.Abs()))
	case right:
		s.log.Info("redis: the node's clock is this machine's again", "node", n.name())
	}
}
