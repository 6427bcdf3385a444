package decide

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// The limits of a rule with holders count requests in flight. The value of a descriptor's
// last entry names the holder: who has a slot until it is released. The subject, whose
// slots they are, is the descriptor without this value.

// nameSubject gives outcome i its subject.
func (c *Call) nameSubject(i int) {
	o, entries := &c.Outcomes[i], c.Descriptors[i].Entries
	o.Subject = entries
	if o.Rule != nil && o.Rule.HasHolders {
		o.Subject = c.withoutHolder(entries)
	}
}

// withoutHolder returns entries without the value of the last one, in the call's memory.
func (c *Call) withoutHolder(entries []bucket.Entry) []bucket.Entry {
	start := len(c.subjects)
	c.subjects = append(c.subjects, entries...)
	c.subjects[len(c.subjects)-1].Value = ""
	return c.subjects[start:len(c.subjects):len(c.subjects)]
}

// hasHolder reports whether the last entry of the outcome's descriptor names a holder.
func (o *Outcome) hasHolder() bool { return o.Rule != nil && o.Rule.HasHolders }

// checkHolder refuses a descriptor whose rule has holders if it names none, has a cost
// that no holder can have, or brings numbers of its own.
func (c *Call) checkHolder(i int) error {
	o, asked := &c.Outcomes[i], &c.Descriptors[i]
	last := len(asked.Entries) - 1
	switch {
	case asked.Own.Set:
		return errorOf(Invalid, "descriptors[%d].%s: found numbers for the rule %s, which counts requests in flight; allowed: none, and an assignment for whom the rule's are wrong",
			i, asked.Own.Names.Whole, o.Rule.Path())
	case asked.cost < -1 || asked.cost > 1:
		return errorOf(Invalid, "descriptors[%d]: found a cost of %d for the rule %s, which counts requests in flight; allowed: 1, which takes a slot, 0, which looks, and a refund of 1, which releases",
			i, asked.cost, o.Rule.Path())
	case asked.Entries[last].Value == "" && !c.Inspects:
		return errorOf(Invalid, "descriptors[%d].entries[%d].value: found an empty text, where the rule %s has the name of the holder of a slot; allowed: what tells one request in flight from others, such as its id",
			i, last, o.Rule.Path())
	}
	return nil
}

// holdersOnly removes the limits that a call to release does not concern.
func (c *Call) holdersOnly(o *Outcome) {
	if len(o.Limits) > 0 && !o.Limits[0].Algorithm.HasHolders() {
		o.Limits = nil
	}
}

// errRefund is the answer to a refund that is no release, where none are taken.
func errRefund(i int) error {
	return errorOf(Forbidden, "descriptors[%d].is_negative_hits: refunds are not taken here (setting api.refunds)", i)
}

// giveBackHits gives back what the wanted hits of a decided call took, as far as the store
// answers.
func (d *Decider) giveBackHits(ctx context.Context, c *Call, wanted func(*bucket.Hit) bool) {
	var parts [givenBackParts]givenBack
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, d := range o.Decisions {
			if h := &o.Hits[j]; wanted(h) && c.Taken(o, j).At != 0 {
				parts[c.partOf(h, d.Degraded)].add(*h, d)
			}
		}
	}
	for part := range parts {
		_ = d.giveBackPart(context.WithoutCancel(ctx), c, part, &parts[part])
	}
}

// countHolder counts, for its limit, what became of the slot of a hit that was charged.
func countHolder(limit *tally.LimitCounts, h *bucket.Hit, d *bucket.Decision) {
	counts := limit.Holders()
	switch {
	case h.Cost < 0:
		counts.Released[d.Released].Add(1)
	case d.Renewal == bucket.RenewedSoon:
		counts.RenewedSoon.Add(1)
	case d.Renewal == bucket.Renewed:
		counts.Renewed.Add(1)
	}
}

// HeldFor returns how long the holder of limit j of an outcome of the decided call has its
// slot if it is not heard of again; 0 if the call did not take or renew it.
func (c *Call) HeldFor(o *Outcome, j int) time.Duration {
	h, d := &o.Hits[j], &o.Decisions[j]
	if h.Holder == "" || h.Cost <= 0 || d.At == 0 || !bucket.Due(h, d, !c.Denied) {
		return 0
	}
	return h.Limit.Period
}
