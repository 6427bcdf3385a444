package assign

import "errors"

// RecordKind is what a Record is about.
type RecordKind uint8

// Kinds.
const (
	// Assigned: something is assigned after the change.
	Assigned RecordKind = iota + 1
	// Unassigned: nothing is left.
	Unassigned
	// WasReset: the states of a subject's limits were forgotten.
	WasReset
	// ResetFailed: a reset that was recorded did not come to its end, so some of its
	// states may still exist.
	ResetFailed
	// Restored: a daemon put back what the store had lost. Such a record has no subject.
	Restored
)

// Record says who changed what.
type Record struct {
	// ID orders the records of a store by time.
	ID string `json:"-"`
	// Moment is on the store's clock, in microseconds since the Unix epoch.
	Moment int64      `json:"moment,omitempty"`
	Kind   RecordKind `json:"kind"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Subject
	// Before and After are what was in force before and after a change. They are nil if
	// that was nothing, for other kinds, and if this version cannot read one of them.
	// After has the ID of the record as its ETag; Before has none.
	Before *Assignment `json:"-"`
	After  *Assignment `json:"-"`
	// Limits are the names of the limits that were reset.
	Limits []string `json:"limits,omitempty"`
	// Restored is how many assignments were put back.
	Restored int `json:"restored,omitempty"`
	// Undoes is the ID of the record that an undo takes back.
	Undoes string `json:"undoes,omitempty"`
}

// Record returns the record of a change with these results, without ID and Moment.
func (c *Change) Record(before, after *Assignment) Record {
	r := Record{Kind: Assigned, By: c.By, Reason: c.Reason, Subject: c.Subject, Before: before, After: after, Undoes: c.Undoes}
	if after == nil {
		r.Kind = Unassigned
	}
	return r
}

// Undo returns the change that takes back a record, if it is still the newest of its
// subject; otherwise its outcome is Conflict. It lacks By and Reason.
func Undo(r Record) (Change, error) {
	c := Change{Subject: r.Subject, Whole: r.Before, IfMatch: IfNone, Undoes: r.ID}
	switch {
	case r.Kind != Assigned && r.Kind != Unassigned:
		return Change{}, errors.New("the last record of this subject is not of a change of its assignment")
	case r.Kind == Assigned && r.After == nil || r.Kind == Unassigned && r.Before == nil:
		return Change{}, errors.New("the last change of this subject is of a later version, which can undo it")
	}
	if r.After != nil {
		c.IfMatch = r.After.ETag
	}
	if c.Whole == nil {
		c.Whole = &Assignment{Subject: r.Subject}
	}
	return c, nil
}
