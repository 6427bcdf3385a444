package replay

import (
	"fmt"
	"io"
)

// estimate marks a number that is an estimate.
func estimate(isOne bool, number string) string {
	if isOne {
		return "~" + number
	}
	return number
}

// asked says how many subjects asked.
func (n *SubjectCounts) asked(t *SubjectTally) string { return estimate(n.Estimated, Grouped(t.Asked)) }

// hits says how many subjects were denied, or newly denied and so on.
func (n *SubjectCounts) hits(count uint64) string {
	return estimate(n.HitEstimated, plural(count, "subject"))
}

// change says how many of all subjects were denied, before and after.
func (n *SubjectCounts) change(hasBefore bool) string {
	if !hasBefore {
		return n.of(&n.After)
	}
	return n.of(&n.Before) + " before, " + n.of(&n.After) + " after"
}

// of says how many of all subjects were denied.
func (n *SubjectCounts) of(t *SubjectTally) string {
	return fmt.Sprintf("%s of %s (%s)", estimate(n.HitEstimated, Grouped(t.Denied)), n.asked(t), percent(t.Denied, t.Asked))
}

// denials says how many subjects were denied, or would have been by a limit on trial;
// nothing if none asked.
func (n *SubjectCounts) denials(t *SubjectTally) string {
	if t.Asked == 0 {
		return "-"
	}
	text := estimate(n.HitEstimated, share(t.Denied, t.Asked))
	if t.Shadowed > 0 {
		text += ", " + estimate(n.HitEstimated, Grouped(t.Shadowed)) + " shadowed"
	}
	return text
}

// larger returns the phase in which more asked.
func (n *SubjectCounts) larger() *SubjectTally {
	if n.Before.Asked > n.After.Asked {
		return &n.Before
	}
	return &n.After
}

// subjectsWord stands in place of a limit in the row of a rule's subjects.
const subjectsWord = "(subjects)"

func (r *Report) writeRuleSubjects(w io.Writer, n *SubjectCounts) {
	fmt.Fprintf(w, "  \t%s\t%s", subjectsWord, n.asked(n.larger()))
	if r.Recorded {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", n.denials(&n.Before), n.denials(&n.After),
			estimate(n.HitEstimated, Grouped(n.NewlyDenied)), estimate(n.HitEstimated, Grouped(n.NewlyAllowed)))
		return
	}
	fmt.Fprintf(w, "\t%s\n", n.denials(&n.After))
}
