package servertest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// Patience is how long a test waits for what must happen, on a busy machine too.
const Patience = 2 * time.Minute

// Midnight began a day, a week of fixed windows and every shorter window:
// Thursday, 1 January 2026. Tests begin 10.25 s after it.
var Midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NewClock returns a clock for the store and the log. It stands still unless a
// test moves it.
func NewClock() *asynctest.Clock {
	c := asynctest.NewClock()
	c.Set(Midnight.Add(10250 * time.Millisecond).UnixMicro())
	return c
}

// Within receives a value that must come.
func Within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}
