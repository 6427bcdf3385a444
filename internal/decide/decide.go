package decide

import "context"

// Decide fills in the outcomes of a call, one for each descriptor, and counts them. Its
// error is the store's, or one of Match.
func (d *Decider) Decide(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if err := d.take(ctx, c); err != nil {
		return err
	}
	return d.conclude(ctx, c)
}

// conclude counts a decided call. If its caller has disconnected, the slots that it newly
// took are freed instead, since nothing would release them.
func (d *Decider) conclude(ctx context.Context, c *Call) error {
	if c.hasHolders && ctx.Err() != nil {
		d.freeNewSlots(ctx, c)
		return ctx.Err()
	}
	d.count(c)
	return nil
}

// Look fills in the outcomes of a checked call as Decide would at this moment, and only looks
// at the states: it charges nothing, remembers nothing and counts nothing.
func (d *Decider) Look(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	return c.decideBy(ctx, d.Store.Check)
}
