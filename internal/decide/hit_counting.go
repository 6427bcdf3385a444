package decide

import (
	"math"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// HitCounting says how hits are counted.
type HitCounting struct {
	// On says whether rules count hits in the parts that metrics with the names of
	// envoyproxy/ratelimit have.
	On bool
	// NearRatio is the part of a limit, 0 to 1, above which hits are near it. It
	// matters whether On is set or not, since what each limit says depends on it too.
	NearRatio float32
}

// isNear reports whether a limit is near its end after a hit was charged to it. A
// degraded decision says nothing about that.
func (h HitCounting) isNear(l *bucket.Limit, d *bucket.Decision) bool {
	return !d.Degraded && d.Remaining < l.Capacity-h.nearFrom(l)
}

// nearFrom returns the count above which a limit is near its end, computed in 32 bits
// like envoyproxy/ratelimit, which rounds 0.29 x 100 to 29.
func (h HitCounting) nearFrom(l *bucket.Limit) int64 {
	return int64(math.Floor(float64(float32(l.Capacity) * h.NearRatio)))
}

// parts splits the hits of an outcome into the parts that are counted. admitted is
// whether the request was. Of several limits, the one with the most hits over it, or
// near it, counts. Peeks, refunds, and outcomes without a limit have no hits.
func (h HitCounting) parts(o *Outcome, admitted bool) tally.Hits {
	if len(o.Hits) == 0 || o.Hits[0].Cost <= 0 {
		return tally.Hits{}
	}
	// No limit is higher.
	cost := min(o.Hits[0].Cost, bucket.MaxRequests)
	over, near, isOver := int64(0), int64(0), false
	for i := range o.Hits {
		if !o.Enforces(i) {
			continue
		}
		d := &o.Decisions[i]
		charged := bucket.Charged(&o.Hits[i], d, admitted)
		if !d.Allowed() {
			isOver = true
			room := d.Remaining
			if charged {
				room = d.RoomBefore
			}
			over = max(over, beyond(cost, room))
		}
		if charged {
			near = max(near, h.near(o.Hits[i].Limit, d, cost))
		}
	}
	if !isOver {
		return tally.Hits{Within: uint64(cost), Near: uint64(near)}
	}
	parts := tally.Hits{Over: uint64(over), Fit: uint64(cost - over), Near: uint64(min(near, cost-over))}
	if o.Shadow {
		parts.Shadowed = uint64(cost)
	}
	return parts
}

// beyond returns how many hits of a denied cost there was no room for. If there was
// room for this hit alone, another one on the same key took it.
func beyond(cost, room int64) int64 {
	if room < cost {
		return cost - room
	}
	return cost
}

// near returns how many hits of a charged cost moved the count near the limit and not
// beyond it. A degraded decision says nothing about the count.
func (h HitCounting) near(l *bucket.Limit, d *bucket.Decision, cost int64) int64 {
	if d.Degraded {
		return 0
	}
	from := h.nearFrom(l)
	if !d.Allowed() { // it filled the limit
		return min(d.RoomBefore, l.Capacity-from)
	}
	return min(cost, max(0, l.Capacity-d.Remaining-from))
}
