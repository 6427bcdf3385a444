package decide

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// ErrAlone is how a call ends that was not decided together with others. Decide decides it.
var ErrAlone = errors.New("a call is to be decided alone")

// NodeOf returns the node that decides a matched call, which may be decided together with
// others of this node. It is nil if the call must be decided alone: it does more than take,
// or a part of it is decided without the store.
func (d *Decider) NodeOf(c *Call) any {
	if d.Many == nil || !c.onlyTakes() {
		return nil
	}
	return d.Many.NodeOf(c.Hits)
}

// onlyTakes reports whether all that a matched call needs is a Take of the store.
func (c *Call) onlyTakes() bool {
	return c.ID == "" && !c.hasRefusal && len(c.Hits) > 0 && !c.chargesUse()
}

// DecideTogether decides calls of one caller, and of one node, as Decide does, but asks the
// store about all of them at once. errs, which has an element for each and no error, gets how
// each ended.
func (d *Decider) DecideTogether(ctx context.Context, calls []*Call, errs []error) {
	takes := make([]bucket.Take, 0, len(calls))
	for i, c := range calls {
		if d.Match(c) != nil || !c.onlyTakes() || d.Refuses() != nil {
			errs[i] = ErrAlone // Decide says why
			continue
		}
		c.makeDecisions()
		takes = append(takes, bucket.Take{Hits: c.Hits, Decisions: c.decisions})
	}
	if len(takes) == 0 {
		return
	}
	d.Many.TakeMany(ctx, takes)
	for i, c := range calls {
		if errs[i] != nil {
			continue
		}
		taken := takes[0]
		takes = takes[1:]
		if errs[i] = taken.Err; errs[i] != nil {
			continue
		}
		c.applyDecisions()
		errs[i] = d.conclude(ctx, c)
	}
}
