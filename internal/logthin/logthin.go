// Package logthin thins the lines of a log that repeat: at most one line an
// interval, and how many were left out. It imports nothing of the project.
package logthin

import (
	"sync"
	"time"
)

// Thinner spaces the log lines of one kind. The first line is due at once. The
// zero Thinner is ready to use, and its methods may be called concurrently.
type Thinner struct {
	mu      sync.Mutex
	last    time.Time // when a line was last due; zero before the first
	leftOut int       // lines since
}

// Due reports whether a line is due at now: when the last one that was due lies
// at least an interval back. If so, leftOut is how many lines were not due
// since that one.
func (t *Thinner) Due(now time.Time, interval time.Duration) (leftOut int, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.last) < interval {
		t.leftOut++
		return 0, false
	}
	leftOut = t.leftOut
	t.last, t.leftOut = now, 0
	return leftOut, true
}

// Reset makes the next line due at once, as the first one was: what the lines
// were about has ended.
func (t *Thinner) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.leftOut = time.Time{}, 0
}
