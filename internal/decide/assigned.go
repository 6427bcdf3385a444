package decide

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// assigned returns what is assigned to the descriptor; table has the assignments of its
// domain, and is nil if there are none. If the last entry names a holder, the own numbers
// are those of the entries before it.
func (d *Descriptor) assigned(table *assign.DomainTable, hasHolder bool, now func() int64) (found assign.Found) {
	switch {
	case d.Found != nil:
		found = *d.Found
	case table != nil:
		found = table.Find(d.Entries, now)
		if hasHolder {
			subject := table.Find(d.Entries[:len(d.Entries)-1], now)
			found.Own, found.Now = subject.Own, subject.Now
		}
	}
	return found
}

// planOf returns the plan in force of a rule with plans, or nil, and whether the
// descriptor counts as one without a rule: it was given no plan and the rule has no
// default, or it was given a plan that the rule does not have. A plan that is gone from
// the file, or was misspelt, is replaced by the default, unless unmatched descriptors
// are denied.
func (d *Decider) planOf(domain *rules.Domain, plans *rules.Plans, assigned *assign.Held) (plan *rules.Rule, missing bool) {
	if assigned != nil {
		if plan := plans.Plan(assigned.Plan()); plan != nil {
			return plan, false
		}
		if d.DeniesUnmatched(domain) {
			return nil, true
		}
	}
	return plans.Default, plans.Default == nil
}

// DeniesUnmatched reports whether descriptors of a domain that have no rule are
// denied.
func (d *Decider) DeniesUnmatched(domain *rules.Domain) bool {
	if domain.Unmatched == rules.UnmatchedDefault {
		return d.Modes.DenyUnmatched
	}
	return domain.Unmatched == rules.DenyUnmatched
}

// assign replaces what the rule of an outcome says with what is assigned to exactly
// this descriptor, as far as that is in force at the moment now.
func (c *Call) assign(o *Outcome, own *assign.Held, now int64) {
	if own.Frees(now) {
		o.Limits, o.freed = nil, true
		return
	}
	if !own.HasNumbers() && !own.HasCalendar() || len(o.Limits) == 0 {
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
	spec := l.Spec
	if l.Algorithm.HasHolders() && n.Period != 0 {
		return l // they are for a rate of the same name
	}
	spec.Requests, spec.Burst = n.Requests, n.Burst
	if n.Period != 0 {
		spec.Period = n.Period
	}
	if own, err := d.overrides.get(ownLimit{spec: spec}); err == nil {
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

// refusals are the limits that stand for a refusal in answers: they admit nothing
// and have no state.
var refusals = map[Refusal][]*bucket.Limit{
	Blocked:   {refusal(tally.BlockedLimit)},
	Unmatched: {refusal(tally.UnmatchedLimit)},
}

func refusal(name string) *bucket.Limit {
	l, err := bucket.NewLimit(bucket.Spec{Name: name, Algorithm: bucket.FixedWindow, Period: time.Second})
	if err != nil {
		panic(fmt.Sprintf("decide: a limit of nothing is none: %v", err))
	}
	return l
}

// refuse denies outcome i until a moment, in microseconds since the Unix epoch, or for
// good if that is 0. The outcome's limits become that of the refusal, and then those
// that are charged anyway for what was already used.
func (c *Call) refuse(i int, why Refusal, until int64) {
	o, asked := &c.Outcomes[i], &c.Descriptors[i]
	limits := refusals[why]
	for _, l := range o.Limits {
		if asked.of(l).ChargedAnyway(asked.cost) {
			limits = append(limits, l)
		}
	}
	o.Refusal, o.until, o.Own, o.freed, o.Limits = why, until, nil, false, limits
	c.hasRefusal = true
}

// refused returns the decision of a refused outcome.
func (o *Outcome) refused(now int64) bucket.Decision {
	if o.until == 0 {
		return bucket.Decision{RetryAfter: bucket.Never}
	}
	left := max(time.Microsecond, time.Duration(o.until-now)*time.Microsecond)
	return bucket.Decision{RetryAfter: left, ResetAfter: left}
}

// takeBesideRefusals calls a method of the store for a call with refused outcomes. It
// does not ask the store about those: a refusal holds while the store is away. If one
// of them denies the call, what was already used is charged, and the rest is only
// looked at.
func (c *Call) takeBesideRefusals(ctx context.Context, method storeMethod) error {
	now, hits, decisions := c.decider.Now(), c.Hits, c.decisions
	var asked, used []int
	denied := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			switch h, n := &o.Hits[j], o.First+j; {
			case o.Refusal != NotRefused && j == 0:
				decisions[n] = o.refused(now)
				denied = denied || o.Role == bucket.Enforced
			case h.Limit.ChargedAnyway(h.Cost):
				used = append(used, n)
			default:
				asked = append(asked, n)
			}
		}
	}
	if !denied { // all refusals are in shadow
		asked = append(asked, used...)
		return decideSome(ctx, method, pick(hits, asked), asked, decisions)
	}
	charged := pick(hits, used)
	for i := range charged {
		charged[i].Role = bucket.Aside // whatever the others get
	}
	if err := decideSome(ctx, method, charged, used, decisions); err != nil {
		return err
	}
	// The request is denied, whatever the store would say.
	_ = decideSome(ctx, c.decider.Store.Check, pick(hits, asked), asked, decisions)
	return nil
}

// pick returns copies of the hits with these indexes.
func pick(hits []bucket.Hit, which []int) []bucket.Hit {
	some := make([]bucket.Hit, len(which))
	for i, n := range which {
		some[i] = hits[n]
	}
	return some
}

// decideSome calls a method of a store with some of the hits of a call, and puts the
// decisions where the call has these hits: at the indexes which.
func decideSome(ctx context.Context, method storeMethod, some []bucket.Hit, which []int, decisions []bucket.Decision) error {
	if len(some) == 0 {
		return nil
	}
	got := make([]bucket.Decision, len(some))
	if err := method(ctx, some, got); err != nil {
		return err
	}
	for i, n := range which {
		decisions[n] = got[i]
	}
	return nil
}
