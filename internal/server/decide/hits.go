package decide

import (
	"math"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// HitCounting says whether rules count hits, as the metrics by the names of
// envoyproxy/ratelimit show them. The zero value counts none.
type HitCounting struct {
	On bool
	// NearRatio is the part of a limit from which on hits are near it, 0 to 1.
	NearRatio float32
}

// parts returns the hits of an outcome in the parts that are counted. hits are
// those that it asked for, in the order of its limits, and admitted is whether the
// request was. Of several limits the one with the most hits over it or near it
// counts. Peeks, refunds, and outcomes without a limit have no hits.
func (h HitCounting) parts(o *Outcome, hits []bucket.Hit, admitted bool) config.Hits {
	if len(hits) == 0 || hits[0].Cost <= 0 {
		return config.Hits{}
	}
	// No limit is higher, and sums of what callers choose should not wrap round.
	cost := min(hits[0].Cost, bucket.MaxRequests)
	over, near, isOver := int64(0), int64(0), false
	for i := range hits {
		d := &o.Decisions[i]
		if !d.Allowed() {
			isOver = true
			over = max(over, beyond(cost, d))
		}
		if bucket.Charged(&hits[i], d, admitted) {
			near = max(near, h.near(hits[i].Limit, d, cost))
		}
	}
	parts := config.Hits{Near: uint64(near)}
	if !isOver {
		parts.Within = uint64(cost)
		return parts
	}
	parts.Over, parts.Fit = uint64(over), uint64(cost-over)
	if o.Shadow {
		parts.Shadowed = uint64(cost)
	}
	return parts
}

// beyond returns how many hits of a denied cost there was no room for. Beside
// another hit on the same key there may have been room for this one alone.
func beyond(cost int64, d *bucket.Decision) int64 {
	if d.Remaining < cost {
		return cost - d.Remaining
	}
	return cost
}

// near returns by how many hits of a charged cost the count came to stand near the
// limit and not beyond it. An answer that the store did not give says nothing of
// the count.
func (h HitCounting) near(l *bucket.Limit, d *bucket.Decision, cost int64) int64 {
	if d.Degraded || !d.Allowed() {
		return 0
	}
	// In 32 bits as envoyproxy/ratelimit, which rounds 0.7 x 10 to 7.
	from := int64(math.Floor(float64(float32(l.Capacity) * h.NearRatio)))
	return min(cost, max(0, l.Capacity-d.Remaining-from))
}
