// Package asynctest helps tests of concurrent code: it waits for a state, and has a log
// that can be read while it is written and a clock that a test moves. It imports nothing
// of the project.
package asynctest

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Eventually waits until is returns true. If it does not within two minutes, which is
// long on a busy machine too, the test ends with a message that names what.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// Settling is a set of tests after which something has to end. It is for
// goleak.VerifyTestMain, which waits half a second for goroutines that are about to end.
type Settling struct {
	Tests interface{ Run() int }
	// IsSettled reports whether it has ended.
	IsSettled func() bool
}

// Run runs the tests, and returns their code once IsSettled returns true, or after a
// minute.
func (s Settling) Run() int {
	code := s.Tests.Run()
	for deadline := time.Now().Add(time.Minute); code == 0 && !s.IsSettled() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// Buffer is a text that can be read while it is written. The zero value is
// empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the text.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often s is in the text that was written so far.
func (b *Buffer) Count(s string) int { return strings.Count(b.String(), s) }

// Clock is a clock that a test moves.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that stands still, at an arbitrary moment.
func NewClock() *Clock {
	c := &Clock{}
	c.micros.Store(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC).UnixMicro())
	return c
}

// Micros returns the time in microseconds since the Unix epoch.
func (c *Clock) Micros() int64 { return c.micros.Load() }

// Time returns the time.
func (c *Clock) Time() time.Time { return time.UnixMicro(c.micros.Load()) }

// Set moves the clock to a time in microseconds since the Unix epoch.
func (c *Clock) Set(micros int64) { c.micros.Store(micros) }

// Move moves the clock; back if by is negative.
func (c *Clock) Move(by time.Duration) { c.micros.Add(by.Microseconds()) }
