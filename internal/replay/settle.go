package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// settle settles what a line says was settled, of takes that each side allowed.
func (r *Replay) settle(l *Record, recorded *decider) error {
	r.totals.Settlements++
	for p, s := range r.sides {
		if s == nil {
			continue
		}
		d := s.of(&l.Line)
		if d == nil {
			return errUnknownLimits
		}
		c, err := s.settle(d, &l.Line, recorded)
		if err != nil {
			return r.refused(l, err)
		}
		if phase(p) == after && r.o.Limits == nil {
			r.compared.add(l, settledDifference(&l.Line, c))
		}
	}
	return nil
}

// settle settles a line.
func (s *side) settle(d *decider, l *decisionlog.Line, recorded *decider) (*decide.Call, error) {
	c, err := s.match(d, l, recorded)
	if err != nil {
		return nil, err
	}
	return c, d.Settle(context.Background(), c)
}

// unreserve takes a take of these hits out of the bills of the call's ID.
func (s *side) unreserve(c *decide.Call, hits []bucket.Hit) error {
	for i := range hits {
		hits[i].Cost = -hits[i].Cost
	}
	return s.states.Settle(context.Background(), c.StoreID(), hits, make([]bucket.Settled, len(hits)))
}

// settledDifference returns the first difference, or nil.
func settledDifference(l *decisionlog.Line, c *decide.Call) *Difference {
	for i := range c.Settled {
		did := &c.Settled[i]
		d := &l.Descriptors[did.Descriptor]
		then := recordedLimit(d, &c.Outcomes[did.Descriptor], did.Limit)
		if then == nil || then.Degraded {
			continue
		}
		for _, n := range [...]struct {
			what      string
			then, now int64
		}{
			{"takes", then.Takes, did.Takes},
			{"returned", then.Returned, did.Returned},
			{"added", then.Added, did.Added},
			{"remaining", then.Remaining, did.Remaining},
			{"reset_after_us", inMicros(int64(then.ResetAfter)), inMicros(int64(did.ResetAfter))},
		} {
			if n.then != n.now {
				return &Difference{
					What:     fmt.Sprintf("descriptors[%d] %s: %s", did.Descriptor, strings.Clone(then.Name), n.what),
					Recorded: fmt.Sprint(n.then), Replayed: fmt.Sprint(n.now),
				}
			}
		}
	}
	return nil
}
