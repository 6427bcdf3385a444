package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Match finds the rule and the limits of each descriptor and makes the hits, once: a call
// that was matched stays so, with its error. A block takes precedence over numbers that the
// descriptor brings, these over an assignment, and that over the file. Its error says
// that limits or assignments are not loaded, or which own limit is invalid.
func (d *Decider) Match(c *Call) error {
	if !c.isMatched {
		c.isMatched = true
		c.matchError = d.match(c)
	}
	return c.matchError
}

func (d *Decider) match(c *Call) error {
	rules, err := d.inForce()
	if err != nil {
		return err
	}
	domain, assigned := rules.Domain(c.Domain), d.Assigned.Domain(c.Domain)
	c.Rules, c.found = rules, domain
	for i := range c.Descriptors {
		c.Outcomes = append(c.Outcomes, Outcome{})
		o, asked := &c.Outcomes[i], &c.Descriptors[i]
		if domain != nil {
			o.Rule = domain.Match(asked.Entries)
		}
		c.nameSubject(i)
		if c.onlyReleases && asked.Refund && !o.hasHolder() && !c.Releases {
			return errRefund(i)
		}
		if domain == nil {
			continue
		}
		found := asked.assigned(assigned, o.hasHolder(), d.Now)
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
		if c.Releases {
			c.holdersOnly(o)
		}
		if o.hasHolder() && len(o.Limits) > 0 {
			if err := c.checkHolder(i); err != nil {
				return err
			}
		}
		if c.Releases {
			continue // whatever is said of the descriptor
		}
		if asked.Own.Set {
			if err := c.override(domain, o, i); err != nil {
				return err
			}
		} else if missing && d.DeniesUnmatched(domain) && !c.IsSettlement {
			c.refuse(i, Unmatched, 0)
		}
		if found.Blocked != nil && !c.IsSettlement {
			c.refuse(i, Blocked, found.Blocked.BlockEnd())
		}
	}
	if c.hasReplacing {
		c.replace()
	}
	if c.hasRoles || d.Modes.giveRoles() {
		c.giveRoles(d.Modes)
	}
	c.addHits(domain)
	c.settleQuotas()
	return nil
}

// addHits adds the hits of the limits of each outcome.
func (c *Call) addHits(domain *rules.Domain) {
	for i := range c.Outcomes {
		o, d := &c.Outcomes[i], &c.Descriptors[i]
		if len(o.Limits) == 0 {
			continue
		}
		entries := o.Subject
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
		holder := ""
		if o.hasHolder() {
			holder = bucket.HolderOf(d.Entries[len(d.Entries)-1].Value)
			c.hasHolders = true
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
			if holder != "" && l.Algorithm.HasHolders() {
				c.Hits[len(c.Hits)-1].Holder = holder
			}
		}
	}
	first := 0 // each gets its hits once all are there, since appending moves them
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		end := first + len(o.Limits)
		o.First, o.Hits = first, c.Hits[first:end:end]
		first = end
	}
}
