package pipe

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// quietOffset is how far a node's clock may be from this machine's before it is
// logged.
const quietOffset = time.Second

// logEvery is the interval of log lines about a node that is down, constantly or now and
// then, that refuses, or whose clock is wrong; each kind has an interval of its own.
const logEvery = time.Minute

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
		if _, wrong = w.lines.Due(start, logEvery); wrong {
			w.isLoggedWrong.Store(true)
		}
	case off+slack <= quietOffset && w.isLoggedWrong.Load():
		right = w.isLoggedWrong.CompareAndSwap(true, false)
	}
	return offset, wrong, right
}
