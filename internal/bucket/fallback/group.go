package fallback

import (
	"context"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// group is the working memory of one call: hits with distinct keys and what
// they got.
type group struct {
	hits      []bucket.Hit
	of        []int // for each hit of the caller, its index in hits
	decisions []bucket.Decision
	shares    []*bucket.Limit // of local hits; nil for others
	number    uint32          // of the shares

	// Local hits on their shares, chosen for a call of the local store.
	chosen          []bucket.Hit
	chosenOf        []int // where each stands in hits
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

// clear empties the group and keeps its memory, of which nothing points to
// what callers own.
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

// settleQuotas leaves the local store only those quotas to decide about that
// others leave open: each local hit of another has no say any more.
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

// putAside takes their say from the hits of quotas from i up to end.
func (g *group) putAside(i, end int) {
	for ; i < end; i++ {
		if g.hits[i].Role > bucket.Enforced {
			g.hits[i].Role = bucket.Aside
		}
	}
}

// The choices among local hits.
func anyHit(*bucket.Hit, *bucket.Decision) bool { return true }
func chargedAnyway(h *bucket.Hit, _ *bucket.Decision) bool {
	return h.Limit.ChargedAnyway(h.Cost)
}
func notChargedAnyway(h *bucket.Hit, d *bucket.Decision) bool { return !chargedAnyway(h, d) }

// choose chooses the local hits that are wanted.
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

// decide has the local hits that are wanted decided as one group: by the local
// store's Take, or its Check.
func (g *group) decide(ctx context.Context, by func(context.Context, []bucket.Hit, []bucket.Decision) error, wanted func(*bucket.Hit, *bucket.Decision) bool) error {
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

// scatter writes to each of the caller's hits what its key got.
func (g *group) scatter(decisions []bucket.Decision) {
	for i, j := range g.of {
		decisions[i] = g.decisions[j]
	}
}
