package steer

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// outcomeText is the word for the outcome of a change.
func outcomeText(o adminv1.ChangeOutcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "CHANGE_OUTCOME_"))
}

// changeText describes a change and its outcome.
func changeText(domain string, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange, now time.Time) string {
	return fmt.Sprintf("%-9s  %s: %s", outcomeText(c.GetOutcome()), assigntext.SubjectText(domain, entries), resultText(c, now))
}

// resultText says what is in force after a change, or why it was not made.
func resultText(c *adminv1.AssignmentChange, now time.Time) string {
	switch c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT:
		return cmp.Or(c.GetError(), "another version is in force: "+assigntext.Describe(c.GetBefore(), now))
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN:
		return cmp.Or(c.GetError(), "the store did not answer: it may be in force or not; run it again")
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
		return cmp.Or(c.GetError(), "the store refused it, and nothing was changed")
	}
	return assigntext.Describe(c.GetAfter(), now)
}

// hasReplaced reports whether a change has replaced something.
func hasReplaced(o adminv1.ChangeOutcome) bool {
	return o == adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED || o == adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED
}

// succeeded reports whether the requested state is in force.
func succeeded(o adminv1.ChangeOutcome) bool {
	switch o {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED,
		adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED, adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED:
		return true
	}
	return false
}
