package fallback

import (
	"context"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// group is a group of hits with distinct keys and their decisions, and the memory
// to decide it.
type group struct {
	hits      []bucket.Hit
	of        []int // for each hit of the caller, its index in hits
	decisions []bucket.Decision
	shares    []*bucket.Limit // of the limits of local hits; nil for other hits
	number    uint32          // of the shares

	// Local hits on their shares, chosen for one use of the local store.
	chosen          []bucket.Hit
	chosenOf        []int // for each, its index in hits
	chosenDecisions []bucket.Decision
}

// merge fills an empty group.
func (g *group) merge(hits []bucket.Hit) {
	g.hits, g.of = bucket.Merge(g.hits, g.of, hits)
	n := len(g.hits)
	g.decisions = slices.Grow(g.decisions, n)[:n]
	g.shares = slices.Grow(g.shares, n)[:n]
	clear(g.decisions)
	clear(g.shares)
}

// clear empties the group and keeps its memory, which then points to nothing of
// a caller's.
func (g *group) clear() {
	clear(g.hits)
	clear(g.shares)
	g.hits, g.of, g.decisions, g.shares = g.hits[:0], g.of[:0], g.decisions[:0], g.shares[:0]
	g.unchoose()
}

func (g *group) unchoose() {
	clear(g.chosen)
	g.chosen, g.chosenOf, g.chosenDecisions = g.chosen[:0], g.chosenOf[:0], g.chosenDecisions[:0]
}

// settleQuotas puts aside the local hits of quotas that are decided without the local
// store: quotas with another hit that is denied, or all quotas once one without local
// hits is allowed.
func (g *group) settleQuotas() {
	settled := false
	for i := 0; i < len(g.hits); {
		if g.hits[i].Role <= bucket.Enforced {
			i++
			continue
		}
		end, local, denied := i, false, false
		for ; end < len(g.hits) && g.hits[end].Role == g.hits[i].Role; end++ {
			local = local || g.shares[end] != nil
			denied = denied || !g.decisions[end].Allowed()
		}
		if denied {
			g.putAside(i, end)
		}
		settled = settled || !local && !denied
		i = end
	}
	if settled {
		g.putAside(0, len(g.hits))
	}
}

// putAside makes hits of quotas from i up to end Aside.
func (g *group) putAside(i, end int) {
	for ; i < end; i++ {
		if g.hits[i].Role > bucket.Enforced {
			g.hits[i].Role = bucket.Aside
		}
	}
}

// Which local hits are wanted.
func anyHit(*bucket.Hit, *bucket.Decision) bool { return true }
func chargedAnyway(h *bucket.Hit, _ *bucket.Decision) bool {
	return h.Limit.ChargedAnyway(h.Cost)
}
func notChargedAnyway(h *bucket.Hit, d *bucket.Decision) bool { return !chargedAnyway(h, d) }

// choose fills chosen with the wanted local hits.
func (g *group) choose(wanted func(*bucket.Hit, *bucket.Decision) bool) {
	g.unchoose()
	for i := range g.hits {
		if g.shares[i] == nil || !wanted(&g.hits[i], &g.decisions[i]) {
			continue
		}
		h := g.hits[i]
		h.Limit = g.shares[i]
		g.chosen = append(g.chosen, h)
		g.chosenOf = append(g.chosenOf, i)
		g.chosenDecisions = append(g.chosenDecisions, g.decisions[i])
	}
}

// storeMethod is a store's Take or Check, or its Reserve for some ID.
type storeMethod = func(context.Context, []bucket.Hit, []bucket.Decision) error

// decide decides the wanted local hits as one group, by a method of the local store.
func (g *group) decide(ctx context.Context, by storeMethod, wanted func(*bucket.Hit, *bucket.Decision) bool) error {
	g.choose(wanted)
	if len(g.chosen) == 0 {
		return nil
	}
	if err := by(ctx, g.chosen, g.chosenDecisions); err != nil {
		return fmt.Errorf("fallback: %w", err)
	}
	for i, j := range g.chosenOf {
		g.decisions[j] = local(g.hits[j], g.chosenDecisions[i])
		g.decisions[j].Share = g.number
	}
	return nil
}

// scatter writes the decisions of the caller's hits.
func (g *group) scatter(decisions []bucket.Decision) {
	for i, j := range g.of {
		decisions[i] = g.decisions[j]
	}
}
