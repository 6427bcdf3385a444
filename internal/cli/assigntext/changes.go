package assigntext

import (
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Change is what the rows of one subject change together.
type Change struct {
	// Line is that of the first row, and Rows is how many there are.
	Line, Rows int
	// Over is how many layers are left out because they have ended.
	Over int
	*adminv1.AssignmentPatch
}

// Changes reads rows subject by subject: of each the base first, if it has a row, then the
// layers on top of it, bottom first.
type Changes struct {
	rows rowReader
	now  time.Time
	next func() (Row, []RowError, error) // nil: the rows'
}

// ReadChanges returns a reader of the changes that readRows has rows of. Layers that have
// ended by now are left out.
func ReadChanges(from io.Reader, domain string, now time.Time) (*Changes, error) {
	rows, err := readRows(from, domain)
	return &Changes{rows: rows, now: now}, err
}

// Next returns the next change, or what is wrong with its rows. Its error, io.EOF at the
// end, says that there are no more.
func (c *Changes) Next() (Change, []RowError, error) {
	first, bad, err := c.row()
	if err != nil {
		return Change{}, nil, err
	}
	change := Change{Line: first.Line, Rows: 1, AssignmentPatch: first.Patch()}
	if change.Assignment == nil {
		return change, bad, nil
	}
	if first.Until != nil {
		c.addLayer(&change, first.Assignment)
	}
	for {
		row, wrong, err := c.row()
		if err != nil || !isOfSubject(row, change.Assignment) {
			c.next = func() (Row, []RowError, error) { return row, wrong, err }
			break
		}
		change.Rows++
		if row.Until == nil {
			wrong = append(wrong, RowError{Line: row.Line, Column: 1, Text: fmt.Sprintf("found %s again without until, the first is on line %d; allowed: each once, and below it rows with until",
				SubjectText(row.GetDomain(), row.GetEntries()), change.Line)})
		}
		bad = append(bad, wrong...)
		c.addLayer(&change, row.Assignment)
	}
	c.dropOver(&change)
	return change, bad, nil
}

// row returns the next row, which Next may have read already.
func (c *Changes) row() (Row, []RowError, error) {
	read := c.rows.Next
	if c.next != nil {
		read, c.next = c.next, nil
	}
	return read()
}

// isOfSubject reports whether a row is of the subject of an assignment.
func isOfSubject(r Row, a *adminv1.Assignment) bool {
	return r.Assignment != nil && len(r.GetEntries()) > 0 && r.GetDomain() == a.GetDomain() &&
		slices.EqualFunc(r.GetEntries(), a.GetEntries(), func(x, y *ratelimitv1.Entry) bool { return proto.Equal(x, y) })
}

// addLayer puts what a row says on top of a change.
func (c *Changes) addLayer(to *Change, row *adminv1.Assignment) {
	layer := &adminv1.TemporaryLayer{
		Plan: row.GetPlan(), Numbers: row.GetNumbers(), Unlimited: row.GetUnlimited(), Blocked: row.GetBlocked(), Calendar: row.GetCalendar(),
		Until: row.Until, Reason: row.GetReason(),
	}
	if row == to.Assignment { // it is no base
		to.AssignmentPatch.Assignment = &adminv1.Assignment{Domain: row.GetDomain(), Entries: row.GetEntries(), Reason: row.GetReason()}
	}
	to.Assignment.Temporary = append(to.Assignment.Temporary, layer)
}

// dropOver removes the layers of a change that have ended.
func (c *Changes) dropOver(from *Change) {
	layers := len(from.Assignment.GetTemporary())
	from.Assignment.Temporary = slices.DeleteFunc(from.Assignment.GetTemporary(), func(t *adminv1.TemporaryLayer) bool {
		return !t.GetUntil().AsTime().After(c.now)
	})
	from.Over = layers - len(from.Assignment.GetTemporary())
}

// IsOver reports whether nothing of a change is left to be made.
func (c *Change) IsOver() bool {
	return c.Over > 0 && len(c.GetRemove()) == 0 && len(partsOf(c.GetAssignment())) == 0 && len(c.GetAssignment().GetTemporary()) == 0
}
