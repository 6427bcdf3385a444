package decide

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// count counts the outcome of each descriptor of a decided call.
func (d *Decider) count(c *Call) {
	unknown := uint64(0)
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		result := c.ResultOf(o)
		switch {
		case o.Rule != nil:
		case o.Own != nil:
			d.OwnLimits.add(result == tally.Allowed)
			continue
		case c.rulesOfDomain != nil:
			c.rulesOfDomain.WithoutRule.Add(result)
			continue
		default:
			unknown++
			continue
		}
		if result == tally.Allowed && len(o.Hits) > 0 && c.Descriptors[i].cost == 0 {
			result = tally.Peeked
		}
		counts := o.Rule.Count(result, o.Subject)
		used := d.countLimits(o, c.Denied)
		d.Tops.add(o.Rule, o.Subject, c.Began, result == tally.Denied, used)
		if d.Hits.On {
			counts.AddHits(d.Hits.parts(o, !c.Denied))
		}
	}
	if d.Settlements != nil && c.IsReserved() {
		d.Settlements.Reserved.Inc()
	}
	if unknown > 0 {
		d.UnknownDomains.Add(unknown)
	}
}

// countLimits counts what each limit of an outcome with a rule said. It returns the
// cost that was charged to at least one limit.
func (d *Decider) countLimits(o *Outcome, denied bool) (used int64) {
	for j := range o.Hits {
		h, decision := &o.Hits[j], &o.Decisions[j]
		counts := o.Rule.Counts.Limit(o.LimitName(j), j)
		cost := min(h.Cost, bucket.MaxRequests)
		charged := bucket.Due(h, decision, !denied)
		if h.Holder != "" && charged {
			countHolder(counts, h, decision)
		}
		if cost < 0 {
			if charged && h.Holder == "" {
				counts.Refunded.Add(uint64(min(-h.Cost, bucket.MaxRequests)))
			}
			continue
		}
		result := d.limitResult(o, j, charged)
		counts.Add(result, cost)
		switch {
		case !decision.PauseBegan:
		case result == tally.LimitShadowed:
			counts.ShadowedPauses.Add(1)
		default:
			counts.Pauses.Add(1)
		}
		if charged && decision.Renewal == bucket.NotRenewed {
			used = max(used, cost)
		}
	}
	return used
}

// countHolder counts, for its limit, what became of the slot of a hit that was charged.
func countHolder(limit *tally.LimitCounts, h *bucket.Hit, decision *bucket.Decision) {
	counts := limit.Holders()
	switch {
	case h.Cost < 0:
		counts.Released[decision.Released].Add(1)
	case decision.Renewal == bucket.RenewedSoon:
		counts.RenewedSoon.Add(1)
	case decision.Renewal == bucket.Renewed:
		counts.Renewed.Add(1)
	}
}

// countSettled counts a settlement, and in the rules the costs that were returned and
// added. Who had the most counts what was added, as a charge, and never less.
func (d *Decider) countSettled(c *Call) {
	if d.Settlements != nil {
		d.Settlements.add(c)
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

// add counts a settlement.
func (n *SettlementCounts) add(c *Call) {
	if !c.IsSettled() {
		n.Unknown.Inc()
		return
	}
	n.Settled.Inc()
	if c.IsShared() {
		n.Shared.Inc()
	}
}

// countGivenBack counts the cost of the hit on limit j, if the outcome has a rule.
func (o *Outcome) countGivenBack(j int) {
	if o.Rule != nil {
		o.Rule.Counts.Limit(o.LimitName(j), j).GivenBack.Add(uint64(min(max(o.Hits[j].Cost, 0), bucket.MaxRequests)))
	}
}
