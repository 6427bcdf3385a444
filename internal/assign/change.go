package assign

import "slices"

// Check returns why a change is not valid, or nil, as Assignment.Check does.
func (c *Change) Check() error {
	if !c.Delete {
		return c.Assignment.Check()
	}
	k := checker{}
	k.subject(&c.Assignment.Subject)
	k.text("reason", c.Assignment.Reason)
	k.text("made_by", c.Assignment.By)
	return joined(k)
}

// Decide returns what becomes of a change where before is in force, or nil if
// nothing is; before has not ended. It does not know what is Full.
func (c *Change) Decide(before *Assignment) Outcome {
	switch {
	case c.IfMatch == IfNone && before != nil, c.IfMatch != "" && c.IfMatch != IfNone && (before == nil || before.ETag != c.IfMatch):
		return Conflict
	case c.Delete && before == nil:
		return Unchanged
	case c.Delete:
		return Deleted
	case before == nil:
		return Created
	case before.Until == c.Assignment.Until && before.Reason == c.Assignment.Reason && before.Terms.Equal(&c.Assignment.Terms):
		return Unchanged
	}
	return Replaced
}

// Chooses reports whether a query asks for a record.
func (q *RecordQuery) Chooses(r *Record) bool {
	return (q.Domain == "" || q.Domain == r.Domain) && (len(q.Entries) == 0 || slices.Equal(q.Entries, r.Entries))
}
