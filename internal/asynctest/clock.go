package asynctest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that a test moves.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that stands at a moment without a meaning.
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

// Move moves the clock, also back.
func (c *Clock) Move(by time.Duration) { c.micros.Add(by.Microseconds()) }
