package decide

import (
	"context"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Taken identifies the take of a hit, for a give-back.
type Taken struct {
	// At is the moment of the take on the clock of its key, in microseconds:
	// negative if a fallback took, 0 if nothing was taken.
	At int64
	// By is a fingerprint of the key, the algorithm and the numbers, and of the
	// share if a fallback took; 0 if it is not known.
	By uint64
}

// Taken identifies the take of limit j of an outcome of the decided call.
func (c *Call) Taken(o *Outcome, j int) Taken {
	h, decision := &o.Hits[j], &o.Decisions[j]
	if decision.At == 0 || !bucket.Charged(h, decision, !c.Denied) {
		return Taken{}
	}
	t := Taken{At: decision.At, By: TakenBy(h) ^ uint64(decision.Share)}
	if decision.Degraded {
		t.At = -t.At
	}
	return t
}

// TakenBy returns a fingerprint of a hit's key and of the numbers that its state
// is counted with. It is the same on every daemon. If a take had another
// fingerprint, these numbers do not say how much of it still counts.
func TakenBy(h *bucket.Hit) uint64 { return xxhash.Sum64(h.Key) ^ h.Limit.Fingerprint() }

// decision returns the decision of the take. It reports false if the hit's limit
// has changed since.
func (t Taken) decision(h *bucket.Hit, since int64) (decision bucket.Decision, ok bool) {
	decision = bucket.Decision{At: max(t.At, -t.At), Degraded: t.At < 0}
	if decision.At < since {
		return decision, false
	}
	if t.By == 0 {
		return decision, true
	}
	share := t.By ^ TakenBy(h)
	decision.Share = uint32(share)
	return decision, share == 0 || decision.Degraded && share <= math.MaxUint32
}

// since returns the moment from which the limits of outcome i are known to be as they
// are now.
func (c *Call) since(i int) int64 {
	if rule := c.Outcomes[i].Rule; rule != nil {
		return rule.Since
	}
	return c.rulesOfDomain.Since
}

// errLimitsChanged is the answer to a give-back of a take by other limits.
var errLimitsChanged = errorOf(Changed,
	"taken_at, taken_by: not of the descriptors' limits as they are now; the limits have changed, or these are not those of the take's response")

// errGiveBacks is the answer to a give-back where none are taken.
var errGiveBacks = errorOf(Forbidden, "give-backs are not taken here (setting api.refunds)")

// GiveBack gives back a take of the call's descriptors. all has what the response said
// of each limit. It gives back everything, or nothing if a limit has changed since; of a
// take with an ID what settlements have left of it. The decisions of the call's outcomes
// then say only when it was given back, and by whom; those of what was not taken say
// nothing. Without refunds, only slots can be given back.
func (d *Decider) GiveBack(ctx context.Context, c *Call, all []Taken, refunds bool) error {
	if err := d.Match(c); err != nil {
		return err
	}
	parts, err := c.partsOf(all, refunds)
	if err != nil {
		return err
	}
	if err := d.Refuses(); err != nil {
		return err
	}
	c.makeDecisions()
	c.giveDecisions()
	for which := range parts {
		if err := d.giveBackPart(ctx, c, which, &parts[which]); err != nil {
			return err
		}
		parts[which].applyDecisions()
	}
	return nil
}

// freeNewSlots gives back the slots that a decided call newly took, as far as the store
// answers.
func (d *Decider) freeNewSlots(ctx context.Context, c *Call) {
	var parts takenParts
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Decisions {
			if h := &o.Hits[j]; h.Holder != "" && c.Taken(o, j).At != 0 {
				parts[c.partOf(h, o.Decisions[j].Degraded)].add(o, j, o.Decisions[j])
			}
		}
	}
	for which := range parts {
		_ = d.giveBackPart(context.WithoutCancel(ctx), c, which, &parts[which])
	}
}

// takenParts are the parts of a take that go back to the store by themselves: what the store
// took, and what a fallback took; and the same for the slots of a take with an ID, which has
// no bills for them.
type takenParts [4]takenPart

// Bits of the index of a part.
const (
	ofFallback = 1
	ofSlots    = 2
)

// takenPart are hits that go back to the store together.
type takenPart struct {
	hits      []bucket.Hit
	decisions []bucket.Decision
	places    []hitPlace
}

// hitPlace is where a call has a hit.
type hitPlace struct {
	outcome *Outcome
	limit   int
}

// partsOf splits a take of a matched call.
func (c *Call) partsOf(all []Taken, refunds bool) (parts takenParts, _ error) {
	if len(all) != len(c.Hits) {
		return parts, errLimitsChanged
	}
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			h, taken := &o.Hits[j], all[o.First+j]
			if taken.At == 0 {
				continue
			}
			if !refunds && !h.Limit.Algorithm.HasHolders() {
				return parts, errGiveBacks
			}
			decision, ok := taken.decision(h, c.since(i))
			if !ok {
				return parts, errLimitsChanged
			}
			parts[c.partOf(h, decision.Degraded)].add(o, j, decision)
		}
	}
	return parts, nil
}

// partOf returns the index of the part that has a hit.
func (c *Call) partOf(h *bucket.Hit, degraded bool) (which int) {
	if degraded {
		which |= ofFallback
	}
	if c.ID != "" && h.Holder != "" {
		which |= ofSlots
	}
	return which
}

func (p *takenPart) add(o *Outcome, j int, taken bucket.Decision) {
	h := o.Hits[j]
	h.Role = bucket.Aside // each was charged by itself
	p.hits = append(p.hits, h)
	p.decisions = append(p.decisions, taken)
	p.places = append(p.places, hitPlace{outcome: o, limit: j})
}

// giveBackPart gives back a part of what a call took.
func (d *Decider) giveBackPart(ctx context.Context, c *Call, which int, p *takenPart) error {
	switch {
	case len(p.hits) == 0:
		return nil
	case c.ID != "" && which < ofSlots: // a settlement would give it back again
		return d.unreserve(ctx, c, p)
	default:
		return d.Store.GiveBack(ctx, p.hits, p.decisions)
	}
}

// unreserve takes a part of a take out of the bills of the call's ID.
func (d *Decider) unreserve(ctx context.Context, c *Call, p *takenPart) error {
	for i := range p.hits {
		p.hits[i].Cost = -p.hits[i].Cost
	}
	settled := make([]bucket.Settled, len(p.hits))
	err := d.Store.Settle(ctx, c.StoreID(), p.hits, settled)
	for i := range settled {
		p.decisions[i].At, p.decisions[i].Seq = settled[i].At, settled[i].Seq
	}
	return err
}

// applyDecisions notes in the outcomes when the part was given back, and counts it.
func (p *takenPart) applyDecisions() {
	for i, at := range p.places {
		given := &p.decisions[i]
		at.outcome.Decisions[at.limit] = bucket.Decision{At: given.At, Seq: given.Seq, Degraded: given.Degraded}
		at.outcome.countGivenBack(at.limit)
	}
}
