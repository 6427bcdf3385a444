package tally

// Hits are the costs of descriptors that matched a rule, split up as in
// envoyproxy/ratelimit's metrics.
type Hits struct {
	// Within are the hits of descriptors that were within their limits.
	Within uint64
	// Over are the hits of the other descriptors that were beyond the limit, and Fit the
	// rest of theirs, for which there was room.
	Over, Fit uint64
	// Near are those hits of Within and Fit that brought a count near its limit, but not
	// beyond it.
	Near uint64
	// Shadowed are those hits of Over and Fit whose descriptors a rule in shadow mode let
	// pass.
	Shadowed uint64
}

// Total returns the hits of all descriptors.
func (h Hits) Total() uint64 { return h.Within + h.Over + h.Fit }

// Plus returns the sum of both. It stops where each of them does.
func (h Hits) Plus(other Hits) Hits {
	plus := func(a, b uint64) uint64 { return min(a+b, maxCost) }
	return Hits{
		Within: plus(h.Within, other.Within), Over: plus(h.Over, other.Over), Fit: plus(h.Fit, other.Fit),
		Near: plus(h.Near, other.Near), Shadowed: plus(h.Shadowed, other.Shadowed),
	}
}

// hitCounts are sums of Hits. They never decrease.
type hitCounts struct{ within, over, fit, near, shadowed Cost }

// AddHits adds hits. Counts to which none are ever added take no memory for them.
func (c *Counts) AddHits(h Hits) {
	if h == (Hits{}) {
		return
	}
	sums := c.hits.Load()
	if sums == nil {
		c.hits.CompareAndSwap(nil, new(hitCounts)) // the same one for all concurrent callers
		sums = c.hits.Load()
	}
	// Most add to one or two sums, and adding zero costs as much.
	for _, part := range [...]struct {
		sum *Cost
		n   uint64
	}{{&sums.within, h.Within}, {&sums.over, h.Over}, {&sums.fit, h.Fit}, {&sums.near, h.Near}, {&sums.shadowed, h.Shadowed}} {
		if part.n > 0 {
			part.sum.Add(part.n)
		}
	}
}

// HasHits reports whether any were added.
func (c *Counts) HasHits() bool { return c.hits.Load() != nil && c.Hits().Total() > 0 }

// Hits returns the sums of the hits that were added.
func (c *Counts) Hits() Hits {
	sums := c.hits.Load()
	if sums == nil {
		return Hits{}
	}
	return Hits{
		Within: sums.within.Load(), Over: sums.over.Load(), Fit: sums.fit.Load(),
		Near: sums.near.Load(), Shadowed: sums.shadowed.Load(),
	}
}
