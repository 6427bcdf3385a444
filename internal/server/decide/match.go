package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// Match finds the limits of each descriptor and makes the hits, once for a call.
// Its error says that no limits are loaded, or which own limit is invalid.
func (d *Decider) Match(c *Call) error {
	if !c.matched {
		c.matched, c.unmatched = true, d.find(c)
	}
	return c.unmatched
}

// find is Match, each time that it is called.
func (d *Decider) find(c *Call) error {
	rules := d.Live.Rules()
	if rules == nil {
		return errNoLimits
	}
	domain := rules.Domain(c.Domain)
	c.found = domain
	for i := range c.Descriptors {
		c.Outcomes = append(c.Outcomes, Outcome{})
		o := &c.Outcomes[i]
		if domain != nil {
			o.Rule = domain.Match(c.Descriptors[i].Entries)
			if o.Rule != nil {
				o.Limits = o.Rule.Limits
			}
			if c.Descriptors[i].Own.Set {
				if err := c.override(domain, o, i); err != nil {
					return err
				}
			}
		}
	}
	c.replace()
	c.giveRoles(d.Modes)
	for i := range c.Outcomes {
		c.ask(domain, i)
	}
	c.settleQuotas()
	return nil
}

// ask adds the hits of the limits of outcome i.
func (c *Call) ask(domain *config.Domain, i int) {
	o, d := &c.Outcomes[i], &c.Descriptors[i]
	if len(o.Limits) == 0 {
		return
	}
	entries := d.Entries
	start := len(c.text)
	if o.Own == nil && o.Rule.ShareThreshold {
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
	for _, l := range o.Limits {
		if d.Reports {
			l = l.Reported()
		}
		start := len(c.text)
		c.text = l.AppendKey(c.text, subject)
		c.Hits = append(c.Hits, bucket.Hit{Limit: l, Key: c.text[start:len(c.text):len(c.text)], Place: place, Cost: d.cost, Role: o.Role})
	}
}
