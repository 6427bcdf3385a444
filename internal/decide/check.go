package decide

import (
	"cmp"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// DefaultReservation is how long what a take with an ID charged can be settled, if its
// caller does not say.
const DefaultReservation = time.Hour

// MaxID bounds the bytes of an ID.
const MaxID = 64

// Check refuses a request that is beyond the bounds or invalid, and computes the cost
// of each descriptor. Its error is an Error, or Override.Invalid. Without refunds, Match
// refuses those that do not release a slot.
func (c *Call) Check(refunds bool) error {
	if c.Domain == "" {
		return errorOf(Invalid, "domain is empty; a request names the domain of its limits")
	}
	if len(c.Descriptors) == 0 {
		return errorOf(Invalid, "descriptors is empty; a request has at least one")
	}
	if n := len(c.Descriptors) + c.MoreDescriptors; n > c.decider.Bounds.Descriptors {
		return errorOf(Invalid, "descriptors: found %d, at most %d are allowed (setting grpc.max_descriptors)", n, c.decider.Bounds.Descriptors)
	}
	if c.ID != "" || c.HasSettleWithin || c.IsSettlement {
		if err := c.checkID(); err != nil {
			return err
		}
	}
	size := len(c.Domain) + len(c.ID)
	c.onlyReleases = !refunds
	for i := range c.Descriptors {
		asked := &c.Descriptors[i]
		if n := len(asked.Entries) + asked.MoreEntries; n > c.decider.Bounds.Entries {
			return errorOf(Invalid, "descriptors[%d].entries: found %d, at most %d are allowed (setting grpc.max_entries)", i, n, c.decider.Bounds.Entries)
		}
		if err := asked.Own.Invalid; err != nil {
			return err
		}
		for _, entry := range asked.Entries {
			size += len(entry.Key) + len(entry.Value)
		}
		asked.cost = c.cost(asked)
	}
	if c.IsSettlement {
		if err := c.checkCosts(); err != nil {
			return err
		}
	}
	c.textSize = size
	if size > c.decider.Bounds.Bytes {
		return errorOf(Invalid, "the request holds %d bytes of text, at most %d are allowed (setting grpc.max_bytes)", size, c.decider.Bounds.Bytes)
	}
	return nil
}

// cost returns what a descriptor takes: its own hits, else those of the request,
// where 0 and unset mean 1.
func (c *Call) cost(asked *Descriptor) int64 {
	if c.Releases {
		return -1
	}
	hits := uint64(max(1, c.HitsAddend))
	if asked.HasHitsAddend {
		hits = asked.HitsAddend
	}
	cost := int64(min(hits, bucket.MaxCost))
	if asked.Refund {
		return -cost
	}
	return cost
}

// checkID refuses an ID that is no name of one take, and how long it is to last.
func (c *Call) checkID() error {
	switch n := len(c.ID); {
	case n > MaxID:
		return errorOf(Invalid, "id: found %d bytes; allowed: 1 to %d, such as a UUID, or a hash of what is longer", n, MaxID)
	case n == 0 && c.IsSettlement:
		return errorOf(Invalid, "id is empty; a settlement has that of its take")
	case n == 0:
		return errorOf(Invalid, "settle_within: found %s without an id; allowed: beside the id of a take", c.SettleWithin)
	}
	switch maxWithin := cmp.Or(c.decider.Bounds.SettleWithin, bucket.MaxReservation); {
	case !c.HasSettleWithin:
		c.SettleWithin = min(DefaultReservation, maxWithin)
	case c.SettleWithin < time.Microsecond || c.SettleWithin > maxWithin:
		return errorOf(Invalid, "settle_within: found %s; allowed: 1us to %s (setting api.max_settle_within)", c.SettleWithin, maxWithin)
	}
	return nil
}

// checkCosts refuses a settlement that does not say what was used.
func (c *Call) checkCosts() error {
	saysCost := false
	for i := range c.Descriptors {
		asked := &c.Descriptors[i]
		if asked.HasHitsAddend && asked.HitsAddend > bucket.MaxCost {
			return errorOf(Invalid, "descriptors[%d].cost: found %d; allowed: 0 to %d, what was used", i, asked.HitsAddend, int64(bucket.MaxCost))
		}
		saysCost = saysCost || asked.HasHitsAddend
	}
	if !saysCost {
		return errorOf(Invalid, "descriptors: found no cost; a settlement says in the cost of a descriptor what was used, 0 for nothing")
	}
	return nil
}
