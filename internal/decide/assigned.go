package decide

import (
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// assigned returns what is assigned to the descriptor of an outcome; table has the
// assignments of its domain, and is nil if there are none. If the last entry names a holder,
// the own numbers are those of the entries before it.
func (asked *Descriptor) assigned(table *assign.DomainTable, o *Outcome, now func() int64) (found assign.Found) {
	switch {
	case asked.Found != nil:
		found = *asked.Found
	case table != nil:
		found = table.Find(o.Entries, now)
		if o.hasHolder() {
			subject := table.Find(o.Entries[:len(o.Entries)-1], now)
			found.Own, found.Now = subject.Own, max(found.Now, subject.Now)
		}
	}
	return found
}

// planOf returns the plan in force of a rule with plans, or nil, and whether the
// descriptor counts as one without a rule: it was given no plan and the rule has no
// default, or it was given a plan that the rule does not have. A plan that is gone from
// the file, or was misspelt, is replaced by the default, unless unmatched descriptors
// are denied.
func (d *Decider) planOf(domain *rules.Domain, plans *rules.Plans, found *assign.Found) (plan *rules.Rule, missing bool) {
	if found.Plan != nil {
		if plan := plans.Plan(found.Plan.Plan(found.Now)); plan != nil {
			return plan, false
		}
		if d.DeniesUnmatched(domain) {
			return nil, true
		}
	}
	return plans.Default, plans.Default == nil
}

// assign replaces what the rule of an outcome says with what is assigned to exactly
// this descriptor, as far as that is in force at the moment now. A slot is released
// while its subject is unlimited too: it counts again afterwards.
func (c *Call) assign(o *Outcome, own *assign.Held, now int64, releases bool) {
	if own.Frees(now) && !releases {
		o.Limits, o.freed = nil, true
		return
	}
	if !own.MayChangeLimits() || len(o.Limits) == 0 {
		return
	}
	start := len(c.overrides)
	for _, l := range o.Limits {
		if n, ok := own.NumbersOf(l.Name, now); ok {
			l = c.decider.withNumbers(l, n)
		}
		if calendar := own.CalendarOf(l.Calendar, now); calendar != l.Calendar {
			l = c.decider.withCalendar(l, calendar)
		}
		c.overrides = append(c.overrides, l)
	}
	o.Limits = c.overrides[start:len(c.overrides):len(c.overrides)]
}

// withNumbers returns a limit with the assigned numbers in place of its own. Both share
// one state. If its algorithm cannot count these numbers, since the file has changed,
// the limit stays as it is.
func (d *Decider) withNumbers(l *bucket.Limit, n assign.Numbers) *bucket.Limit {
	if l.Algorithm.HasHolders() && n.Period != 0 {
		return l // they are for a rate of the same name
	}
	if own, err := d.overrides.get(ownLimit{spec: n.In(l.Spec)}); err == nil {
		return own
	}
	return l
}

// withCalendar returns a limit by calendar whose windows begin elsewhere. Both share one
// state.
func (d *Decider) withCalendar(l *bucket.Limit, c bucket.Calendar) *bucket.Limit {
	spec := l.Spec
	spec.Calendar = c
	if own, err := d.overrides.get(ownLimit{spec: spec}); err == nil {
		return own
	}
	return l
}
