package decide

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Settle makes what takes with the ID of the call have charged the costs of those of its
// descriptors that have one, and notes what that did in Settled. Its error is the store's,
// or one of Match.
//
// What is said of the subjects meanwhile matters only as numbers: one who is blocked while
// his request runs has used what he has used.
func (d *Decider) Settle(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if err := d.Refuses(); err != nil {
		return err
	}
	var hits []bucket.Hit
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			if c.Descriptors[i].HasHitsAddend && !o.Limits[j].Algorithm.HasHolders() {
				hits = append(hits, o.Hits[j])
				c.Settled = append(c.Settled, Settled{Descriptor: i, Limit: j})
			}
		}
	}
	settled := make([]bucket.Settled, len(hits))
	if err := d.Store.Settle(ctx, c.StoreID(), hits, settled); err != nil {
		return err
	}
	for i := range settled {
		c.Settled[i].Settled = settled[i]
	}
	d.countSettled(c)
	return nil
}
