package fallback

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// untilBack is the retry time of denials that end when the store is back: daemons
// use it again within a second of its return.
const untilBack = time.Second

// allow returns the decision of a limit of mode allow, as if nothing had been taken from
// it. A limit of 0, or a cost over the capacity, is denied for ever in any mode.
func allow(h bucket.Hit) bucket.Decision {
	d := h.Limit.DecideFirst(0, h.Demand(0))
	d.Degraded = true
	return d
}

// deny returns the decision of a limit of mode deny: nothing remains. A refund is
// allowed and changes nothing.
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

// local returns the decision of a limit of mode local, whose share decided d. A
// cost that fits into the limit but not into the share may be allowed when the
// store is back.
func local(h bucket.Hit, d bucket.Decision) bucket.Decision {
	d.Degraded = true
	if d.RetryAfter == bucket.Never && allow(h).Allowed() {
		d.RetryAfter = max(untilBack, d.ResetAfter)
	}
	return d
}
