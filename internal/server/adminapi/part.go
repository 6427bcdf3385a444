package adminapi

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// partial is a change of a part of an assignment. Stores change assignments whole, so
// the other part is read before, and the change is for the very version that was read.
type partial struct {
	asked assign.Change
	part  adminv1.Part
}

// partOf returns the part that an assignment says something of: who sends what
// customers pay for does not lift their blocks, and who blocks them takes nothing from
// them.
func partOf(asked *assign.Assignment) adminv1.Part {
	switch {
	case !asked.Blocked:
		return adminv1.Part_PART_TERMS
	case !asked.HasMore():
		return adminv1.Part_PART_BLOCK
	}
	return adminv1.Part_PART_UNSPECIFIED
}

// whole returns the change for the store, given what is in force, or nil.
func (p *partial) whole(held *assign.Assignment) assign.Change {
	c := p.asked
	if p.part == adminv1.Part_PART_UNSPECIFIED {
		return c
	}
	var kept assign.Assignment // the part that stays
	if held != nil {
		kept = *held
	}
	asked := c.Assignment
	if p.part == adminv1.Part_PART_BLOCK {
		c.Assignment.Terms, c.Assignment.Until = kept.Terms, kept.Until
		c.Assignment = c.Assignment.WithBlockOf(&asked)
	} else {
		c.Assignment = c.Assignment.WithBlockOf(&kept)
	}
	c.Delete = !c.Assignment.HasMore() && !c.Assignment.Blocked
	if held != nil && !c.Delete {
		if c.Assignment.Reason == "" {
			c.Assignment.Reason = held.Reason
		}
		if p.asked.Delete && c.Assignment.Terms.Equal(&held.Terms) && c.Assignment.Until == held.Until {
			c.Assignment.Reason = held.Reason // there is nothing to end
		}
	}
	switch {
	case c.IfMatch != "":
	case held != nil:
		c.IfMatch = held.ETag
	case !c.Delete:
		c.IfMatch = assign.IfNone
	}
	return c
}

// isOurs reports whether a conflict is one with a change that came in between, and not
// with the caller's own if_match.
func (p *partial) isOurs() bool {
	return p.part != adminv1.Part_PART_UNSPECIFIED && p.asked.IfMatch == ""
}

const (
	// conflictsMost is how often changes of parts are made again that another change
	// came in between.
	conflictsMost = 20
	// betweenConflicts lets this daemon see that change.
	betweenConflicts = 20 * time.Millisecond
)

// applyParts has the store make changes, and logs each.
func (a *API) applyParts(ctx context.Context, parts []partial) (assign.Applied, error) {
	all := assign.Applied{Results: make([]assign.Result, len(parts))}
	left := make([]int, len(parts))
	for i := range left {
		left[i] = i
	}
	pending := make(map[string]bool)
	for try := 0; len(left) > 0; try++ {
		changes := make([]assign.Change, len(left))
		for i, n := range left {
			changes[i] = parts[n].whole(a.held(parts[n].asked.Assignment.Subject))
		}
		applied, err := a.apply(ctx, changes)
		if err != nil {
			if try == 0 {
				return applied, err
			}
			break // what was made before is told, and the rest is a conflict
		}
		for _, id := range applied.Pending {
			if !pending[id] {
				pending[id] = true
				all.Pending = append(all.Pending, id)
			}
		}
		var again []int
		for i, n := range left {
			all.Results[n] = applied.Results[i]
			if applied.Results[i].Outcome == assign.Conflict && parts[n].isOurs() && try < conflictsMost {
				again = append(again, n)
			}
		}
		if left = again; len(left) > 0 {
			select {
			case <-ctx.Done():
				return all, nil
			case <-time.After(betweenConflicts):
			}
		}
	}
	return all, nil
}
