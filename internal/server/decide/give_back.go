package decide

import (
	"context"
	"math"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Taken names, for a give-back, the take of a hit.
type Taken struct {
	// At is the moment of the take on the clock of its key, in microseconds:
	// negative if a fallback took, 0 if nothing was taken.
	At int64
	// By is a fingerprint of the key, the algorithm and the numbers, and of the
	// share if a fallback took; 0 if it is not known.
	By uint64
}

// Taken names the take of hit i of a decided call.
func (c *Call) Taken(i int, d *bucket.Decision) Taken {
	h := &c.Hits[i]
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

// since returns the moment since when the limits of outcome i are known to be what
// they are.
func (c *Call) since(i int) int64 {
	if rule := c.Outcomes[i].Rule; rule != nil {
		return rule.Since
	}
	return c.found.Since
}

// errLimitsChanged is the answer to a give-back of a take by other limits.
var errLimitsChanged = status.Error(codes.FailedPrecondition,
	"taken_at, taken_by: not of the descriptors' limits as they are now; the limits have changed, or these are not those of the take's response")

// GiveBack gives back a take of the call's descriptors. all has what the response
// said of each limit. It gives back everything, or nothing if a limit has changed
// since. The decisions of the call's outcomes then have the moments at which that
// happened, and nothing else, and none for what was not taken.
func (d *Decider) GiveBack(ctx context.Context, c *Call, all []Taken) error {
	if err := d.find(c); err != nil {
		return err
	}
	if len(all) != len(c.Hits) {
		return errLimitsChanged
	}
	// The first are takes of the store, the second those of a fallback.
	var hits [2][]bucket.Hit
	var decisions [2][]bucket.Decision
	var of [2][]int // for each of these, its index among all
	n := 0
	for i := range c.Outcomes {
		for range c.Outcomes[i].Limits {
			h, t, hit := c.Hits[n], all[n], n
			n++
			if t.At == 0 {
				continue
			}
			decision, ok := t.decision(&h, c.since(i))
			if !ok {
				return errLimitsChanged
			}
			by := 0
			if decision.Degraded {
				by = 1
			}
			h.Role = bucket.Aside // each was charged by itself
			hits[by], decisions[by], of[by] = append(hits[by], h), append(decisions[by], decision), append(of[by], hit)
		}
	}
	if err := d.Refuses(); err != nil {
		return err
	}
	for by := range hits {
		if len(hits[by]) == 0 {
			continue
		}
		if err := d.Store.GiveBack(ctx, hits[by], decisions[by]); err != nil {
			return err
		}
		c.countGivenBack(of[by])
	}
	c.decisions = append(c.decisions, make([]bucket.Decision, len(c.Hits))...)
	for by := range of {
		for i, hit := range of[by] {
			d := &decisions[by][i]
			c.decisions[hit] = bucket.Decision{At: d.At, Seq: d.Seq, Degraded: d.Degraded}
		}
	}
	c.giveDecisions()
	return nil
}

// countGivenBack counts the cost of hits, in ascending order, where they have a rule.
func (c *Call) countGivenBack(hits []int) {
	n := 0
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Limits {
			if len(hits) > 0 && hits[0] == n {
				hits = hits[1:]
				if o.Rule != nil {
					o.Rule.Counts.Limit(o.LimitName(j), j).GivenBack.Add(uint64(min(max(c.Hits[n].Cost, 0), bucket.MaxRequests)))
				}
			}
			n++
		}
	}
}
