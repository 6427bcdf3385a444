package replay

import (
	"fmt"
	"io"
)

// atLeast marks numbers that are lower bounds.
func (n *SubjectCounts) atLeast(number string) string {
	if n.AtLeast {
		return "≥" + number
	}
	return number
}

func (n *SubjectCounts) number(count uint64) string { return n.atLeast(grouped(count)) }

func (n *SubjectCounts) plural(count uint64) string { return n.atLeast(plural(count, "subject")) }

// change says how many of all subjects were denied, before and after.
func (n *SubjectCounts) change(hasBefore bool) string {
	if !hasBefore {
		return n.deniedOf(&n.After)
	}
	return n.deniedOf(&n.Before) + " before, " + n.deniedOf(&n.After) + " after"
}

// deniedOf says how many of all subjects were denied.
func (n *SubjectCounts) deniedOf(t *SubjectTally) string {
	return fmt.Sprintf("%s of %s (%s)", n.number(t.Denied), n.number(t.Asked), percent(t.Denied, t.Asked))
}

// denials says how many subjects were denied, or would have been by a limit on trial;
// nothing if none asked.
func (n *SubjectCounts) denials(t *SubjectTally) string {
	if t.Asked == 0 {
		return "-"
	}
	text := n.atLeast(share(t.Denied, t.Asked))
	if t.Shadowed > 0 {
		text += ", " + n.number(t.Shadowed) + " shadowed"
	}
	return text
}

// asked says how many asked, in the phase in which more did.
func (n *SubjectCounts) asked() string { return n.number(max(n.Before.Asked, n.After.Asked)) }

// subjectsWord stands in place of a limit in the row of a rule's subjects.
const subjectsWord = "(subjects)"

func (r *Report) writeRuleSubjects(w io.Writer, n *SubjectCounts) {
	fmt.Fprintf(w, "  \t%s\t%s", subjectsWord, n.asked())
	if r.Recorded {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", n.denials(&n.Before), n.denials(&n.After), n.number(n.NewlyDenied), n.number(n.NewlyAllowed))
		return
	}
	fmt.Fprintf(w, "\t%s\n", n.denials(&n.After))
}
