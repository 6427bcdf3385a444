package fallback

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// untilBack is after how long a denial may be gone for no other reason than
// that the store is back: daemons share again within a second of that.
const untilBack = time.Second

// allow is what a limit of mode allow says, as if nobody had taken from it: a
// limit of 0 and a cost over the capacity are denied for ever, as in any mode.
func allow(h bucket.Hit) bucket.Decision {
	d := h.Limit.Decide(&bucket.State{}, 0, h.Cost)
	d.Degraded = true
	return d
}

// deny is what a limit of mode deny says: nothing remains. A refund is allowed
// and changes nothing.
func deny(h bucket.Hit) bucket.Decision {
	d := allow(h)
	if h.Limit.Requests == 0 {
		return d
	}
	d.Remaining, d.ResetAfter = 0, untilBack
	if h.Cost >= 0 && d.Allowed() {
		d.RetryAfter = untilBack
	}
	return d
}

// local is what a limit of mode local says, after its share said d. What fits
// into the limit but not into the share may pass when the store is back.
func local(h bucket.Hit, d bucket.Decision) bucket.Decision {
	d.Degraded = true
	if d.RetryAfter == bucket.Never && allow(h).Allowed() {
		d.RetryAfter = max(untilBack, d.ResetAfter)
	}
	return d
}
