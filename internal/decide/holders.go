package decide

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The limits of a rule with holders count requests in flight. The value of a descriptor's
// last entry names the holder: who has a slot until it is released. The subject, whose
// slots they are, is the descriptor without this value.

// nameSubject gives an outcome its subject.
func (c *Call) nameSubject(o *Outcome) {
	o.Subject = o.Entries
	if o.hasHolder() {
		o.Subject = c.withoutHolder(o.Entries)
	}
}

// withoutHolder returns entries without the value of the last one, in the call's memory.
func (c *Call) withoutHolder(entries []bucket.Entry) []bucket.Entry {
	start := len(c.subjects)
	c.subjects = append(c.subjects, entries...)
	c.subjects[len(c.subjects)-1].Value = ""
	return c.subjects[start:len(c.subjects):len(c.subjects)]
}

// checkHolder refuses a descriptor whose rule has holders if it names none, has a cost
// that no holder can have, or brings numbers of its own.
func (c *Call) checkHolder(i int) error {
	o, asked := &c.Outcomes[i], &c.Descriptors[i]
	last := len(asked.Entries) - 1
	switch {
	case asked.Own.Set:
		return errorOf(Invalid, "descriptors[%d].%s: found numbers for the rule %s, which counts requests in flight; allowed: none, and an assignment for whom the rule's are wrong",
			i, asked.Own.Names.Whole, o.Rule.Path())
	case asked.cost < -1 || asked.cost > 1:
		return errorOf(Invalid, "descriptors[%d]: found a cost of %d for the rule %s, which counts requests in flight; allowed: 1, which takes a slot, 0, which looks, and a refund of 1, which releases",
			i, asked.cost, o.Rule.Path())
	case asked.Entries[last].Value == "" && !c.Inspects:
		return errorOf(Invalid, "descriptors[%d].entries[%d].value: found an empty text, where the rule %s has the name of the holder of a slot; allowed: what tells one request in flight from others, such as its id",
			i, last, o.Rule.Path())
	}
	return nil
}

// holdersOnly removes the limits that a call to release does not concern.
func (c *Call) holdersOnly(o *Outcome) {
	if len(o.Limits) > 0 && !o.Limits[0].Algorithm.HasHolders() {
		o.Limits = nil
	}
}

// errRefund is the answer to a refund that is no release, where none are taken.
func errRefund(i int) error {
	return errorOf(Forbidden, "descriptors[%d].is_negative_hits: refunds are not taken here, or not from this caller (settings api.refunds, api.callers_file)", i)
}
