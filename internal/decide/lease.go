package decide

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// canLease reports whether the caller of a matched call may use later what it takes: all
// limits have a lease and deny the call by themselves, and all descriptors cost the same.
func (c *Call) canLease() bool {
	if len(c.Hits) == 0 || c.Hits[0].Limit.Lease == 0 || c.ID != "" || c.hasRefusal {
		return false
	}
	for i := range c.Hits {
		if h := &c.Hits[i]; h.Limit.Lease == 0 || h.Role != bucket.Enforced {
			return false
		}
	}
	for i := range c.Descriptors {
		if asked := &c.Descriptors[i]; asked.Own.Set || asked.cost <= 0 || asked.cost != c.Descriptors[0].cost {
			return false
		}
	}
	return true
}

// askForLease makes a matched call take what its caller would lease, if it can.
func (c *Call) askForLease() {
	lease := int64(min(c.Lease, bucket.MaxCost))
	if cost := c.Descriptors[0].cost; lease > cost && c.canLease() {
		c.plainCost, c.Granted = cost, lease
		c.setCost(lease)
	}
}

// lowerLease makes a decided call that was denied what its caller would lease take what
// remains, or its cost if that is no more or was taken meanwhile. It reports whether the call
// has to be decided again. If the store did not decide, it may have taken the lease all the
// same.
func (c *Call) lowerLease() bool {
	if c.Granted == 0 || !c.Denied {
		return false
	}
	remaining := c.Granted - 1
	for i := range c.decisions {
		remaining = min(remaining, c.decisions[i].Remaining)
	}
	if isLowered := uint64(c.Granted) < c.Lease; isLowered || remaining <= c.plainCost {
		c.Granted = 0
		c.setCost(c.plainCost)
	} else {
		c.Granted = remaining
		c.setCost(remaining)
	}
	return !c.IsDegraded()
}

func (c *Call) setCost(cost int64) {
	for i := range c.Descriptors {
		c.Descriptors[i].cost = cost
	}
	for i := range c.Hits {
		c.Hits[i].Cost = cost
	}
}

// GoodFor returns for how long the caller of a decided call may use what it took, or may
// repeat its denial for the same cost or more; 0 if it has to ask.
func (c *Call) GoodFor() time.Duration {
	if !c.canLease() || c.IsDegraded() {
		return 0
	}
	goodFor := bucket.MaxLease
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, l := range o.Limits {
			switch d := &o.Decisions[j]; {
			case c.Denied:
				goodFor = min(goodFor, l.Lease)
			case d.At == 0:
				return 0 // no state knows that it was taken
			default:
				goodFor = min(goodFor, l.GoodFor(d))
			}
		}
	}
	if c.Denied {
		if retry := c.RetryAfter(); retry != bucket.Never {
			goodFor = min(goodFor, retry)
		}
	}
	return goodFor
}
