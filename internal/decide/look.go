package decide

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Look fills in the outcomes of a checked call as Decide would at this moment, and only looks
// at the states: it charges nothing, remembers nothing and counts nothing.
func (d *Decider) Look(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil || len(c.Hits) == 0 {
		return err
	}
	return c.take(ctx, d.Store.Check)
}

// Source is where the numbers of a limit come from.
type Source uint8

// The sources.
const (
	FromFile Source = iota + 1
	FromAssignment
	FromRequest
)

// Source tells where the numbers of one of the outcome's limits come from.
func (o *Outcome) Source(l *bucket.Limit) Source {
	switch {
	case o.Own != nil:
		return FromRequest
	case o.Rule != nil && slices.Contains(o.Rule.Limits, l):
		return FromFile
	}
	return FromAssignment
}
