package decide

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Bounds limit the size of a request.
type Bounds struct {
	// Descriptors is per request, Entries per descriptor, and Bytes for all text of a
	// request.
	Descriptors, Entries, Bytes int
	// Takes is per message that has several takes.
	Takes int
	// SettleWithin is how long a take with an ID can be settled at most; 0 means
	// bucket.MaxReservation.
	SettleWithin time.Duration
}

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

// Cost is what the descriptor of a checked call takes: 0 is a peek, less is a refund.
func (d *Descriptor) Cost() int64 { return d.cost }

// cost returns what a descriptor takes: its own hits, else those of the request,
// where 0 and unset mean 1.
func (c *Call) cost(d *Descriptor) int64 {
	if c.Releases {
		return -1
	}
	hits := uint64(max(1, c.HitsAddend))
	if d.HasHitsAddend {
		hits = d.HitsAddend
	}
	cost := int64(min(hits, bucket.MaxCost))
	if d.Refund {
		return -cost
	}
	return cost
}

// What a hit takes until a store that waits has decided it, in bytes beside the text of its
// key: in the call, on its way to the store, there once more for each hash tag, and once more
// with the fallback if there is no answer. To settle it takes the bills as well.
const (
	hitBytes    = 1300
	settleBytes = 1800
	keyCopies   = 4
	// freeHits are part of what any call is charged for.
	freeHits = 4
)

// HitBytes estimates how many bytes the hits of a checked call take while a store that waits
// decides it, by the rule of its domain that has the most limits; 0 for few hits.
func (c *Call) HitBytes() int64 {
	rules := c.decider.Live.Rules()
	if rules == nil || len(c.Descriptors)*rules.MaxLimits() <= freeHits {
		return 0
	}
	domain := rules.Domain(c.Domain)
	if domain == nil {
		return 0
	}
	hits := len(c.Descriptors) * domain.MaxLimits()
	if hits <= freeHits {
		return 0
	}
	each := hitBytes
	if c.IsSettlement {
		each = settleBytes
	}
	return int64(hits*each + keyCopies*domain.MaxLimits()*c.textSize)
}

// Holds estimates the bytes of the message, its entries, keys and decisions.
func (c *Call) Holds() int64 { return int64(4*c.Size + 512*(len(c.Descriptors)-1)) }

// IsFull reports whether the call has as many descriptors as the bounds allow. If so,
// it counts one more, which is not read: a request costs no more memory than the bounds
// allow, and Check can still say how many descriptors it had.
func (c *Call) IsFull() bool {
	if len(c.Descriptors) < c.decider.Bounds.Descriptors {
		return false
	}
	c.MoreDescriptors++
	return true
}

// IsFullOf is IsFull for the entries of d. The descriptor is being read, and its
// entries begin at start.
func (c *Call) IsFullOf(d *Descriptor, start int) bool {
	if len(c.Entries)-start < c.decider.Bounds.Entries {
		return false
	}
	d.MoreEntries++
	return true
}

// AddDescriptor adds a descriptor that was read, whose entries begin at start.
func (c *Call) AddDescriptor(d Descriptor, start int) {
	d.Entries = c.Entries[start:]
	c.Descriptors = append(c.Descriptors, d)
}

// SettleEntries gives each descriptor its part of the entries once all are read, since
// appending may have moved them.
func (c *Call) SettleEntries() {
	rest := c.Entries
	for i := range c.Descriptors {
		n := len(c.Descriptors[i].Entries)
		c.Descriptors[i].Entries, rest = rest[:n:n], rest[n:]
	}
}
