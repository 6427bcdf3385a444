package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Match finds the limits of each descriptor and makes the hits, unless it has done so
// by the same assignments. Its error says that limits or assignments are not loaded, or
// which own limit is invalid.
func (d *Decider) Match(c *Call) error {
	if c.matched {
		if c.generation == d.Assigned.Generation() {
			return c.unmatched
		}
		c.forgetMatch()
	}
	c.matched, c.unmatched = true, d.find(c)
	return c.unmatched
}

// find does what Match does, whether or not it was done before.
func (d *Decider) find(c *Call) error {
	c.generation = d.Assigned.Generation()
	rules := d.Live.Rules()
	if rules == nil {
		return errNoLimits
	}
	if err := d.loading(); err != nil {
		return err
	}
	domain := rules.Domain(c.Domain)
	c.found, c.Limits = domain, rules.Fingerprint()
	assigned := d.Assigned.Domain(c.Domain)
	for i := range c.Descriptors {
		c.Outcomes = append(c.Outcomes, Outcome{})
		if domain == nil {
			continue
		}
		if err := c.findLimits(domain, assigned, i); err != nil {
			return err
		}
	}
	if c.hasReplacing {
		c.replace()
	}
	if c.hasRoles || d.Modes.giveRoles() {
		c.giveRoles(d.Modes)
	}
	for i := range c.Outcomes {
		c.addHits(domain, i)
	}
	c.giveHits()
	c.settleQuotas()
	return nil
}

// findLimits finds the limits of descriptor i: a block takes precedence over numbers
// that the descriptor brings, these over an assignment, and that over the file.
func (c *Call) findLimits(domain *rules.Domain, assigned *assign.DomainTable, i int) error {
	d, o, asked := c.decider, &c.Outcomes[i], &c.Descriptors[i]
	o.Rule = domain.Match(asked.Entries)
	var found assign.Found
	switch {
	case asked.Found != nil:
		found = *asked.Found
	case assigned != nil:
		found = assigned.Find(asked.Entries, d.Now)
	}
	missing := o.Rule == nil
	if !missing && o.Rule.Plans != nil {
		o.Rule, missing = d.planOf(domain, o.Rule.Plans, found.Plan)
	}
	if r := o.Rule; r != nil {
		o.Limits = r.Limits
		c.hasReplacing = c.hasReplacing || len(r.Replaces) > 0
		c.hasRoles = c.hasRoles || r.ShadowMode || r.QuotaMode
	}
	if found.Own != nil {
		c.assign(o, found.Own, found.Now)
	}
	if asked.Own.Set {
		if err := c.override(domain, o, i); err != nil {
			return err
		}
	} else if missing && d.DeniesUnmatched(domain) {
		c.refuse(i, Unmatched, 0)
	}
	if found.Blocked != nil {
		c.refuse(i, Blocked, found.Blocked.BlockEnd())
	}
	return nil
}

// giveHits gives each outcome its hits, once all are there, since appending moves them.
func (c *Call) giveHits() {
	first := 0
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		end := first + len(o.Limits)
		o.First, o.Hits = first, c.Hits[first:end:end]
		first = end
	}
}

// addHits adds the hits of the limits of outcome i.
func (c *Call) addHits(domain *rules.Domain, i int) {
	o, d := &c.Outcomes[i], &c.Descriptors[i]
	if len(o.Limits) == 0 {
		return
	}
	entries := d.Entries
	start := len(c.text)
	if o.IsRuled() && o.Rule.ShareThreshold {
		entries = slices.Clone(entries)
		entries[len(entries)-1].Value = o.Rule.Pattern
		c.text = bucket.AppendSharedSubject(c.text, c.Domain, entries)
	} else {
		c.text = bucket.AppendSubject(c.text, c.Domain, entries)
	}
	subject := c.text[start:len(c.text):len(c.text)]
	place := subject
	if value, ok := domain.Place(entries); ok {
		start := len(c.text)
		c.text = append(c.text, value...)
		place = c.text[start:len(c.text):len(c.text)]
	}
	for j, l := range o.Limits {
		l = d.of(l)
		role := o.Role
		if l.Unenforced > 0 && j < rules.MaxUnenforced && !l.Enforces(subject) {
			o.unenforced |= 1 << j
			role = bucket.Aside
		}
		start := len(c.text)
		c.text = l.AppendKey(c.text, subject)
		c.Hits = append(c.Hits, bucket.Hit{Limit: l, Key: c.text[start:len(c.text):len(c.text)], Place: place, Cost: d.cost, Role: role})
	}
}
