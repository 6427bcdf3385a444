package assign

import (
	"errors"
	"fmt"
	"slices"
)

// Sets reports whether a change sets any part.
func (c *Change) Sets() bool { return c.Assignment.Blocked || c.Assignment.HasMore() }

// isNone reports whether p names no part.
func (p *Parts) isNone() bool {
	return !p.Plan && !p.Calendar && !p.Unlimited && !p.Block && !p.Numbers && !p.Rest && len(p.Limits) == 0
}

// Check returns why a change is not valid, or nil, as Assignment.Check does.
func (c *Change) Check() error {
	if c.RestOfDomain {
		return c.checkRest()
	}
	if c.Sets() {
		k := checker{}
		k.limits(c.Remove.Limits)
		if err := c.Assignment.Check(); err != nil {
			return errors.Join(err, joined(k))
		}
		k.calendar(c.Assignment.Calendar)
		return joined(k)
	}
	k := checker{}
	if c.Remove.isNone() {
		k.bad("assignment", "no part to set or to remove", "one or more of plan, numbers, calendar, unlimited and blocked")
	}
	k.subject(&c.Assignment.Subject)
	k.ends(&c.Assignment)
	k.limits(c.Remove.Limits)
	k.text("reason", c.Assignment.Reason)
	k.text("made_by", c.Assignment.By)
	return joined(k)
}

// checkRest is Check for the rest of a domain.
func (c *Change) checkRest() error {
	k := checker{}
	a := &c.Assignment
	k.domain(a.Domain)
	if n := len(a.Domain); n > MaxSubject {
		k.bad("domain", fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", MaxSubject))
	}
	if len(a.Entries) > 0 || c.Sets() || c.IfMatch != "" || c.Remove.isNone() {
		k.bad("rest_of_domain", "entries, parts to set, if_match, or no part to remove", "parts to remove alone")
	}
	k.limits(c.Remove.Limits)
	k.text("reason", a.Reason)
	k.text("made_by", a.By)
	return joined(k)
}

// limits checks the names of limits whose numbers are removed.
func (c *checker) limits(names []string) {
	if n := len(names); n > MaxNumbers {
		c.bad("remove_limits", fmt.Sprint(n), fmt.Sprintf("at most %d", MaxNumbers))
		return
	}
	for i, name := range names {
		c.text(fmt.Sprintf("remove_limits[%d]", i), name)
	}
}

// Apply returns what a change turns a stored assignment into, at a time in microseconds
// since the Unix epoch; held may be nil or have ended. It returns what is in force before
// and after, each nil for nothing, and the outcome. If after is new, it lacks At and
// ETag. Apply cannot know about Full.
func (c *Change) Apply(held *Assignment, now int64) (before, after *Assignment, o Outcome) {
	before = held.InForce(now)
	if c.IfMatch == IfNone && before != nil || c.IfMatch != "" && c.IfMatch != IfNone && (before == nil || before.ETag != c.IfMatch) {
		return before, before, Conflict
	}
	after = c.onto(before).InForce(now)
	switch {
	case after == nil && before == nil:
		return nil, nil, Unchanged
	case after == nil:
		return before, nil, Deleted
	case len(after.Numbers) > MaxNumbers:
		return before, before, TooManyNumbers
	case before == nil:
		return nil, after, Created
	case after.Terms.equal(&before.Terms) && after.Ends.equal(&before.Ends) && (after.Reason == "" || after.Reason == before.Reason || !c.Sets()):
		return before, before, Unchanged
	}
	return before, after, Replaced
}

// onto returns the assignment with what is left of before, which may be nil, and with
// what the change sets.
func (c *Change) onto(before *Assignment) *Assignment {
	a := c.Assignment.Canonical()
	a.At, a.ETag = 0, ""
	if before == nil {
		return &a
	}
	gone := &c.Remove
	if a.Plan == "" && !gone.Plan && !gone.Rest {
		a.Plan, a.PlanUntil = before.Plan, before.PlanUntil
	}
	if a.Calendar == (Calendar{}) && !gone.Calendar && !gone.Rest {
		a.Calendar, a.CalendarUntil = before.Calendar, before.CalendarUntil
	}
	if !a.Unlimited && !gone.Unlimited && !gone.Rest {
		a.Unlimited, a.UnlimitedUntil = before.Unlimited, before.UnlimitedUntil
	}
	if !a.Blocked && !gone.Block {
		a.Blocked, a.BlockedUntil = before.Blocked, before.BlockedUntil
	}
	if gone.Numbers || gone.Rest {
		return &a
	}
	numbers, ends := slices.Clone(a.Numbers), make([]int64, len(a.Numbers))
	copy(ends, a.NumbersUntil)
	for i, n := range before.Numbers {
		isSet := slices.ContainsFunc(a.Numbers, func(set Numbers) bool { return set.Limit == n.Limit })
		if !isSet && !slices.Contains(gone.Limits, n.Limit) {
			numbers, ends = append(numbers, n), append(ends, before.NumbersEnd(i))
		}
	}
	a.Numbers, a.NumbersUntil = numbers, ends
	a = a.Canonical()
	return &a
}

// Chooses reports whether a query selects a record.
func (q *RecordQuery) Chooses(r *Record) bool {
	return (q.Domain == "" || q.Domain == r.Domain) && (len(q.Entries) == 0 || slices.Equal(q.Entries, r.Entries))
}
