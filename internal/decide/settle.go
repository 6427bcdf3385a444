package decide

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Settle changes what the reservation ID charged to each descriptor to the cost given for it,
// and says in Settled what that did. Its error is the store's, or one of Match.
//
// A block has no effect: what was used before it was used.
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
				if most := o.Limits[j].MaxSettled(); o.Hits[j].Cost > most {
					return errorOf(Invalid, "descriptors[%d].cost: found %d; allowed: 0 to %d, what the limit %s refills within 366 days",
						i, o.Hits[j].Cost, most, o.LimitName(j))
				}
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
