package redisstore

import (
	"sync"
	"time"
)

// thinned spaces lines of one kind in the log.
type thinned struct {
	mu sync.Mutex
	at time.Time // of the last line
}

// due reports whether it is time for a line, which is the last one then.
func (t *thinned) due(now time.Time, every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.at) < every {
		return false
	}
	t.at = now
	return true
}
