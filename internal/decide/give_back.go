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
	h, d := &o.Hits[j], &o.Decisions[j]
	if d.At == 0 || !bucket.Charged(h, d, !c.Denied) {
		return Taken{}
	}
	t := Taken{d.At, TakenBy(h) ^ uint64(d.Share)}
	if d.Degraded {
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
func (t Taken) decision(h *bucket.Hit, since int64) (d bucket.Decision, ok bool) {
	d = bucket.Decision{At: max(t.At, -t.At), Degraded: t.At < 0}
	if d.At < since {
		return d, false
	}
	if t.By == 0 {
		return d, true
	}
	share := t.By ^ TakenBy(h)
	d.Share = uint32(share)
	return d, share == 0 || d.Degraded && share <= math.MaxUint32
}

// since returns the moment from which the limits of outcome i are known to be as they
// are now.
func (c *Call) since(i int) int64 {
	if rule := c.Outcomes[i].Rule; rule != nil {
		return rule.Since
	}
	return c.found.Since
}

// errLimitsChanged is the answer to a give-back of a take by other limits.
var errLimitsChanged = errorOf(Changed,
	"taken_at, taken_by: not of the descriptors' limits as they are now; the limits have changed, or these are not those of the take's response")

// errGiveBacks is the answer to a give-back where none are taken.
var errGiveBacks = errorOf(Forbidden, "give-backs are not taken here (setting api.refunds)")

// givenBack are takes that go back to the store together.
type givenBack struct {
	hits      []bucket.Hit
	decisions []bucket.Decision
}

func (g *givenBack) add(h bucket.Hit, d bucket.Decision) {
	h.Role = bucket.Aside // each was charged by itself
	g.hits, g.decisions = append(g.hits, h), append(g.decisions, d)
}

// What goes back has four parts: what the store took, and what a fallback took; and the
// same for the slots of a take with an ID, which has no bills for them.
const (
	givenBackParts = 4
	ofFallback     = 1
	ofSlots        = 2
)

func (c *Call) partOf(h *bucket.Hit, degraded bool) (part int) {
	if degraded {
		part += ofFallback
	}
	if c.ID != "" && h.Holder != "" {
		part += ofSlots
	}
	return part
}

// giveBackPart gives back a part of what a call took.
func (d *Decider) giveBackPart(ctx context.Context, c *Call, part int, g *givenBack) error {
	switch {
	case len(g.hits) == 0:
		return nil
	case c.ID != "" && part < ofSlots: // a settlement would give it back again
		return d.unreserve(ctx, c, g.hits, g.decisions)
	default:
		return d.Store.GiveBack(ctx, g.hits, g.decisions)
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

// GiveBack gives back a take of the call's descriptors. all has what the response said
// of each limit. It gives back everything, or nothing if a limit has changed since; of a
// take with an ID what settlements have left of it. The decisions of the call's outcomes
// then say only when it was given back, and by whom; those of what was not taken say
// nothing. Without refunds, only slots can be given back.
func (d *Decider) GiveBack(ctx context.Context, c *Call, all []Taken, refunds bool) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if len(all) != len(c.Hits) {
		return errLimitsChanged
	}
	type place struct {
		of    *Outcome
		limit int
	}
	var parts [givenBackParts]givenBack
	var places [givenBackParts][]place // where their hits are
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, h := range o.Hits {
			t := all[o.First+j]
			if t.At == 0 {
				continue
			}
			if !refunds && !h.Limit.Algorithm.HasHolders() {
				return errGiveBacks
			}
			decision, ok := t.decision(&h, c.since(i))
			if !ok {
				return errLimitsChanged
			}
			part := c.partOf(&h, decision.Degraded)
			parts[part].add(h, decision)
			places[part] = append(places[part], place{o, j})
		}
	}
	if err := d.Refuses(); err != nil {
		return err
	}
	c.decisions = append(c.decisions, make([]bucket.Decision, len(c.Hits))...)
	c.giveDecisions()
	for part := range parts {
		if err := d.giveBackPart(ctx, c, part, &parts[part]); err != nil {
			return err
		}
		for i, at := range places[part] {
			d := &parts[part].decisions[i]
			at.of.Decisions[at.limit] = bucket.Decision{At: d.At, Seq: d.Seq, Degraded: d.Degraded}
			at.of.countGivenBack(at.limit)
		}
	}
	return nil
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
