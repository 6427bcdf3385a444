package client

import (
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
)

// SetLeaseClock replaces the clocks of leases: the monotonic one, since the client was
// made, and the wall clock. Leases are then as long as the daemon says.
func (c *Client) SetLeaseClock(now func() (mono, wall time.Duration)) {
	c.leases.longest = math.MaxInt64
	c.leases.now = func() lease.Instant {
		mono, wall := now()
		return lease.Instant{Mono: int64(mono), Wall: int64(wall)}
	}
}

// IsAskingAhead reports whether an ask for a grant has no answer yet.
func (c *Client) IsAskingAhead() (is bool) {
	c.leases.each(func(h *holding) { is = is || h.IsAsking() })
	return is
}
