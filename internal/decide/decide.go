package decide

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Decide fills in the outcomes of a call, one for each descriptor, and counts them. Its
// error is the store's, or one of Match.
func (d *Decider) Decide(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if len(c.Hits) > 0 {
		take := d.Store.Take
		if c.ID != "" {
			take = d.reserve(c)
		}
		if err := c.take(ctx, take); err != nil {
			return err
		}
	}
	return d.conclude(ctx, c)
}

// conclude counts a decided call. If its caller has disconnected, the slots that it newly
// took are freed instead: nobody would release them.
func (d *Decider) conclude(ctx context.Context, c *Call) error {
	if c.hasHolders && ctx.Err() != nil {
		d.giveBackHits(ctx, c, func(h *bucket.Hit) bool { return h.Holder != "" })
		return ctx.Err()
	}
	d.count(c)
	return nil
}

// Look fills in the outcomes of a checked call as Decide would at this moment, and only looks
// at the states: it charges nothing, remembers nothing and counts nothing.
func (d *Decider) Look(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil || len(c.Hits) == 0 {
		return err
	}
	return c.take(ctx, d.Store.Check)
}
