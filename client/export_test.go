package client

import "time"

// SetLeaseClock replaces the clocks of leases: the monotonic one, since the client was
// made, and the wall clock.
func (c *Client) SetLeaseClock(now func() (mono, wall time.Duration)) {
	c.leases.now = func() instant {
		mono, wall := now()
		return instant{mono: int64(mono), wall: int64(wall)}
	}
}

// IsAskingAhead reports whether an ask for a grant has no answer yet.
func (c *Client) IsAskingAhead() (is bool) {
	c.leases.each(func(h *holding) { is = is || h.isAsking.Load() })
	return is
}
