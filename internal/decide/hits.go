package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// addHits adds the hits on the limits of all outcomes.
func (c *Call) addHits() {
	for i := range c.Outcomes {
		if len(c.Outcomes[i].Limits) > 0 {
			c.addHitsOf(&c.Outcomes[i], &c.Descriptors[i])
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

// addHitsOf adds the hits on the limits of one outcome.
func (c *Call) addHitsOf(o *Outcome, asked *Descriptor) {
	subject, place := c.appendSubject(o)
	holder := ""
	if o.hasHolder() {
		holder = bucket.HolderOf(c.owned(asked.Entries[len(asked.Entries)-1].Value))
		c.hasHolders = true
	}
	for j, l := range o.Limits {
		l = asked.limit(l)
		role := o.Role
		if l.Unenforced > 0 && j < rules.MaxUnenforced && !l.Enforces(subject) {
			o.unenforced |= 1 << j
			role = bucket.Aside
		}
		start := len(c.text)
		c.text = l.AppendKey(c.text, subject)
		c.Hits = append(c.Hits, bucket.Hit{Limit: l, Key: c.text[start:len(c.text):len(c.text)], Place: place, Cost: asked.cost, Role: role})
		if holder != "" && l.Algorithm.HasHolders() {
			c.Hits[len(c.Hits)-1].Holder = holder
		}
	}
}

// appendSubject appends the subject of an outcome to the text of the call, for its keys, and
// what chooses their hash tag, unless that is the subject.
func (c *Call) appendSubject(o *Outcome) (subject, place []byte) {
	entries, shared := o.Subject, o.networks
	start := len(c.text)
	if o.IsRuled() && o.Rule.Shared != nil {
		entries = slices.Clone(entries)
		shared = append(make([]string, 0, len(entries)), shared...)[:len(entries)]
		for i, pattern := range o.Rule.Shared {
			if pattern != "" {
				entries[i].Value, shared[i] = pattern, pattern
			}
		}
	}
	if shared != nil {
		c.text = bucket.AppendSharedSubject(c.text, c.Domain, entries, shared)
	} else {
		c.text = bucket.AppendSubject(c.text, c.Domain, entries)
	}
	subject = c.text[start:len(c.text):len(c.text)]
	value, ok := c.rulesOfDomain.Place(entries)
	if !ok {
		return subject, subject
	}
	start = len(c.text)
	c.text = append(c.text, value...)
	return subject, c.text[start:len(c.text):len(c.text)]
}
