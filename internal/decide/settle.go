package decide

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// DefaultReservation is how long what a take with an ID charged can be settled, if its
// caller does not say.
const DefaultReservation = time.Hour

// MaxID bounds the bytes of an ID.
const MaxID = 64

// Settled is what a settlement did to a limit of the call.
type Settled struct {
	// Descriptor and Limit are indexes: of the descriptor, and of the limit among those
	// of its outcome.
	Descriptor, Limit int
	bucket.Settled
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
	any := false
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		if d.HasHitsAddend && d.HitsAddend > bucket.MaxCost {
			return errorOf(Invalid, "descriptors[%d].cost: found %d; allowed: 0 to %d, what was used", i, d.HitsAddend, int64(bucket.MaxCost))
		}
		any = any || d.HasHitsAddend
	}
	if !any {
		return errorOf(Invalid, "descriptors: found no cost; a settlement says in the cost of a descriptor what was used, 0 for nothing")
	}
	return nil
}

// StoreID is the ID as the store knows it: callers with names have IDs of their own, so that
// none settles what another took. No name has a zero byte.
func (c *Call) StoreID() string {
	if c.Owner == "" {
		return c.ID
	}
	return c.Owner + "\x00" + c.ID
}

func (c *Call) reservation() bucket.Reservation {
	if c.ID == "" {
		return bucket.Reservation{}
	}
	return bucket.Reservation{ID: c.StoreID(), Lasts: c.SettleWithin}
}

// reserve is the store's Reserve for the ID of a call, as a method like its Take.
func (d *Decider) reserve(c *Call) storeMethod {
	return func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
		return d.Store.Reserve(ctx, c.reservation(), hits, decisions)
	}
}

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

// IsSettled reports whether a settlement has found something that the ID charged.
func (c *Call) IsSettled() bool {
	for i := range c.Settled {
		if c.Settled[i].IsKnown {
			return true
		}
	}
	return false
}

// IsShared reports whether a settlement was of an ID that several takes had.
func (c *Call) IsShared() bool {
	for i := range c.Settled {
		if c.Settled[i].Takes > 1 {
			return true
		}
	}
	return false
}

// IsReserved reports whether the decided call charged something that can be settled.
func (c *Call) IsReserved() bool {
	if c.ID == "" {
		return false
	}
	for i := range c.Hits {
		if h := &c.Hits[i]; h.IsReserved() && bucket.Charged(h, &c.decisions[i], !c.Denied) {
			return true
		}
	}
	return false
}

// SettlementCounts count takes that can be settled, and settlements.
type SettlementCounts struct {
	// Reserved are takes with an ID that charged something.
	Reserved prometheus.Counter
	// Settled and Unknown are settlements that found what the ID had charged, and those
	// that did not. Shared are those of Settled whose ID several takes had.
	Settled, Unknown, Shared prometheus.Counter
}

// countReserved counts a decided call with an ID.
func (d *Decider) countReserved(c *Call) {
	if d.Settlements != nil && c.IsReserved() {
		d.Settlements.Reserved.Inc()
	}
}

// countSettled counts a settlement, and in the rules the costs that were returned and
// added. Who had the most counts what was added, as a charge, and never less.
func (d *Decider) countSettled(c *Call) {
	if n := d.Settlements; n != nil {
		switch {
		case !c.IsSettled():
			n.Unknown.Inc()
		case c.IsShared():
			n.Shared.Inc()
			fallthrough
		default:
			n.Settled.Inc()
		}
	}
	used := int64(0) // what was added to at least one limit of the descriptor
	for i := range c.Settled {
		s := &c.Settled[i]
		o := &c.Outcomes[s.Descriptor]
		if o.Rule == nil {
			continue
		}
		if s.IsKnown {
			counts := o.Rule.Counts.Limit(o.LimitName(s.Limit), s.Limit)
			counts.Returned.Add(uint64(min(s.Returned, bucket.MaxRequests)))
			counts.Added.Add(uint64(min(s.Added, bucket.MaxRequests)))
			used = max(used, min(s.Added, bucket.MaxRequests))
		}
		if i == len(c.Settled)-1 || c.Settled[i+1].Descriptor != s.Descriptor {
			d.Tops.add(o.Rule, o.Subject, c.Began, false, used)
			used = 0
		}
	}
}

// unreserve takes a take of these hits, which it charged, out of the bills of the call's
// ID.
func (d *Decider) unreserve(ctx context.Context, c *Call, hits []bucket.Hit, decisions []bucket.Decision) error {
	for i := range hits {
		hits[i].Cost = -hits[i].Cost
	}
	settled := make([]bucket.Settled, len(hits))
	err := d.Store.Settle(ctx, c.StoreID(), hits, settled)
	for i := range settled {
		decisions[i].At, decisions[i].Seq = settled[i].At, settled[i].Seq
	}
	return err
}
