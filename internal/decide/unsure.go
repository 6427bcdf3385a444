package decide

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A daemon that was stopped, or cut off from Redis, may have missed a change of the
// assignments that its maker considers done. Its tenure (package fleet) says so. What
// it decided in this time is given back, and decided again when it has caught up. If it
// cannot catch up, the failure mode answers, as it does without Redis.

// regainWithin bounds how long a request waits for the tenure: the longest that
// requests wait for Redis.
const regainWithin = time.Second

// maxRegains bounds how often a call is decided again. Each time takes a stop of
// seconds, or a step of a clock.
const maxRegains = 3

// regain waits for the tenure, within the caller's time.
func (d *Decider) regain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, regainWithin)
	defer cancel()
	return d.Tenure.Regain(ctx)
}

// decideUnsure decides a call without the store, by assignments that may lack changes,
// and counts its outcomes.
func (d *Decider) decideUnsure(ctx context.Context, c *Call, cause error) error {
	err := d.Match(c)
	if err != nil {
		return err
	}
	d.markUnsure(c)
	if len(c.Hits) > 0 {
		err = c.take(ctx, func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
			return d.Degrade(ctx, c.reservation(), hits, decisions, cause)
		})
	}
	if err != nil {
		return err
	}
	return d.conclude(ctx, c)
}

// markUnsure marks an answer as degraded.
func (d *Decider) markUnsure(c *Call) {
	c.IsUnsure = true
	if d.Unsure != nil {
		d.Unsure.Inc()
	}
}

// undo gives back what a decided call took, as far as the store answers: what is not
// given back lets no request through.
func (d *Decider) undo(ctx context.Context, c *Call) {
	d.giveBackHits(ctx, c, func(*bucket.Hit) bool { return true })
	c.forgetMatch()
}

// hasRefunds reports whether a hit of the call gives something back. That cannot be
// undone, so such a call is not decided again.
func (c *Call) hasRefunds() bool {
	for i := range c.Hits {
		if c.Hits[i].Cost < 0 {
			return true
		}
	}
	return false
}
