package server

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// matchOnce is match of a call that may have been matched before.
func (d *decider) matchOnce(c *call) error {
	if !c.matched {
		c.matched, c.unmatched = true, d.match(c)
	}
	return c.unmatched
}

// match finds the limits of each descriptor, and what to ask of the store. Its
// error is errNoLimits, or says what is wrong with a descriptor's own limit.
func (d *decider) match(c *call) error {
	rules := d.live.Rules()
	if rules == nil {
		return errNoLimits
	}
	domain := rules.Domain(c.domain)
	c.found = domain
	hasModes := d.modes != modes{}
	for i := range c.descriptors {
		c.outcomes = append(c.outcomes, outcome{})
		o := &c.outcomes[i]
		if domain != nil {
			o.rule = domain.Match(c.descriptors[i].entries)
			if o.rule != nil {
				o.limits = o.rule.Limits
			}
			if c.descriptors[i].own.set {
				if err := c.override(domain, o, i); err != nil {
					return err
				}
			}
			hasModes = hasModes || o.hasMode()
		}
	}
	if hasModes {
		c.replace()
		c.giveRoles(d.modes)
	}
	for i := range c.outcomes {
		c.ask(domain, i)
	}
	c.settleQuotas()
	return nil
}

// ask adds the hits of the limits of outcome i.
func (c *call) ask(domain *config.Domain, i int) {
	o, d := &c.outcomes[i], &c.descriptors[i]
	if len(o.limits) == 0 {
		return
	}
	entries := d.entries
	start := len(c.text)
	if o.own == nil && o.rule.ShareThreshold {
		entries = slices.Clone(entries)
		entries[len(entries)-1].Value = o.rule.Pattern
		c.text = bucket.AppendSharedSubject(c.text, c.domain, entries)
	} else {
		c.text = bucket.AppendSubject(c.text, c.domain, entries)
	}
	subject := c.text[start:len(c.text):len(c.text)]
	place := subject
	if value, ok := domain.Place(entries); ok {
		start := len(c.text)
		c.text = append(c.text, value...)
		place = c.text[start:len(c.text):len(c.text)]
	}
	for _, l := range o.limits {
		start := len(c.text)
		c.text = l.AppendKey(c.text, subject)
		c.hits = append(c.hits, bucket.Hit{Limit: l, Key: c.text[start:len(c.text):len(c.text)], Place: place, Cost: d.cost, Role: o.role})
	}
}
