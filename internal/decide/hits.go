package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

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
