package decide

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
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
	case asked.Entries[last].Value == "" && !c.isInspected:
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

// HolderLister is a store that lists who holds slots.
type HolderLister interface {
	// Holders returns who holds slots of the hit's state: the first n of them, or of a hit
	// that names a holder this one alone.
	Holders(ctx context.Context, h *bucket.Hit, n int) (bucket.Held, error)
}

// MaxListed is how many holders of a limit are listed at most.
const MaxListed = 100

// listHolders gives the limits of inspected subjects their holders. Where a holder is
// inspected it is the only one. What the store does not tell is left out.
func (x *explaining) listHolders(ctx context.Context, e *Explanation) {
	if x.decider.Holders == nil {
		return
	}
	for h, l := range x.shown(e) {
		if l.Algorithm.HasHolders() {
			l.Held, _ = x.decider.Holders.Holders(ctx, h, MaxListed)
		}
	}
}

// releaseHits are the hits that free the slot of one holder: those of a Resettable.
func releaseHits(hits []bucket.Hit) []bucket.Hit {
	released := slices.Clone(hits)
	for i := range released {
		released[i].Cost = -1
	}
	return released
}

// Free frees the slots of the holder of r, and returns how many it had.
func (d *Decider) Free(ctx context.Context, r *Resettable) (freed int, _ error) {
	decisions := make([]bucket.Decision, len(r.release))
	if err := d.Store.Take(ctx, r.release, decisions); err != nil {
		return 0, err
	}
	for i := range decisions {
		if decisions[i].Released == bucket.ReleasedSlot {
			freed++
		}
	}
	return freed, nil
}

// sharesHolder returns the name of a limit of the rule nearly all of whose takes renew a
// slot soon after it was taken: then requests share a holder.
func sharesHolder(rule *rules.Rule) (name string, renewed, of uint64) {
	for _, counts := range rule.Counts.Limits() {
		if counts.HasHolders() {
			if renewed, of := counts.SharedHolder(tally.HolderSums{}); of > 0 {
				return counts.Name, renewed, of
			}
		}
	}
	return "", 0, 0
}
