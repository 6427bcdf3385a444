package explain

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// Assignment is an assignment to a descriptor or to a beginning of it.
type Assignment struct {
	*assign.Assignment
	// Applies is set if the descriptor gets something else by it.
	Applies bool
	terms   assign.Terms // those in force
}

// assignmentsOf returns the assignments to a descriptor and to its beginnings. One that
// changes at this very moment may be another than the descriptor was matched with.
func assignmentsOf(d *decide.Decider, domain string, o *decide.Outcome, x *Descriptor) (found []Assignment) {
	now, planned := d.Now(), -1
	for i := range o.Entries[:min(len(o.Entries), assign.MaxEntries)] {
		s := assign.Subject{Domain: domain, Entries: o.Entries[:i+1]}
		if s.Check() != nil {
			break // nothing can be assigned to it, nor to what is longer
		}
		a := d.Assigned.Get(s).InForce(now)
		if a == nil {
			continue
		}
		terms := a.Now()
		if terms.Plan != "" {
			planned = len(found) // the longest beginning with a plan
		}
		found = append(found, Assignment{Assignment: a, terms: terms})
	}
	if o.Refusal == decide.Blocked {
		if i := slices.IndexFunc(found, func(a Assignment) bool { return a.terms.Blocked }); i >= 0 {
			found[i].Applies = true
		}
		return found
	}
	own := len(x.Entries)
	if x.Rule != nil && x.Rule.HasHolders {
		own-- // what is assigned to all holders
	}
	for i := range found {
		a := &found[i]
		isOwn := len(a.Entries) == own && (o.IsFreed() || slices.ContainsFunc(x.Limits, func(l Limit) bool { return l.Source == decide.FromAssignment }))
		givesPlan := i == planned && x.Plan != nil && x.Plan.Plan == a.terms.Plan && o.Own == nil && !o.IsFreed()
		a.Applies = isOwn || givesPlan
	}
	return found
}
