package replay

import (
	"fmt"
	"io"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// crowds count the subjects of all rules, by the hashes of their entries, up to a number
// of subjects. Those beyond it are not counted, so numbers of their rules are then lower
// bounds.
type crowds struct{ counted, maxCounted int }

// crowd is the subjects of a rule. An entry takes up to 40 bytes.
type crowd struct {
	fates map[uint64]fate
	// isFull is set when a subject was not counted.
	isFull bool
}

// fate is what a subject got so far.
type fate uint8

const (
	askedBefore fate = 1 << iota
	deniedBefore
	shadowedBefore
	askedAfter
	deniedAfter
	shadowedAfter
	// wasDenied and isDenied are before and after, whatever the rule: if other limits
	// have another rule for a descriptor, both rules know both.
	wasDenied
	isDenied
)

// fateOf returns what a verdict in a phase means for its own rule.
func fateOf(p phase, r decisionlog.Result) fate {
	asked, denied, shadowed := askedBefore, deniedBefore, shadowedBefore
	if p == after {
		asked, denied, shadowed = askedAfter, deniedAfter, shadowedAfter
	}
	switch r {
	case decisionlog.Denied:
		return asked | denied
	case decisionlog.Shadowed:
		return asked | shadowed
	}
	return asked
}

// bothFates returns what a result before and one after mean for the rules of both.
func bothFates(before, after decisionlog.Result) (f fate) {
	if before == decisionlog.Denied {
		f |= wasDenied
	}
	if after == decisionlog.Denied {
		f |= isDenied
	}
	return f
}

// add adds what a subject of a rule got.
func (c *crowds) add(r *row, hash uint64, got fate) {
	if r.crowd.fates == nil {
		r.crowd.fates = make(map[uint64]fate)
	}
	was, isCounted := r.crowd.fates[hash]
	switch {
	case isCounted && was|got == was:
	case isCounted:
		r.crowd.fates[hash] = was | got
	case c.counted < c.maxCounted:
		c.counted++
		r.crowd.fates[hash] = got
	default:
		r.crowd.isFull = true
	}
}

// SubjectTally counts subjects of a rule, or of all rules.
type SubjectTally struct {
	// Asked are those that asked, whatever the result.
	Asked uint64 `json:"asked"`
	// Denied are those with a denied request, and Shadowed those that exceeded a limit
	// that is not in force.
	Denied   uint64 `json:"denied"`
	Shadowed uint64 `json:"shadowed"`
}

// SubjectCounts compares the subjects of a rule, or of all rules; in the latter case a
// subject that asked under several rules counts for each.
type SubjectCounts struct {
	Before SubjectTally `json:"before"`
	After  SubjectTally `json:"after"`
	// NewlyDenied were never denied before and are now, NewlyAllowed the reverse.
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	// AtLeast is set if there were more subjects than Options.MaxKeys: then all numbers
	// are lower bounds.
	AtLeast bool `json:"at_least"`
}

// counts returns what is known about the subjects of a crowd.
func (c *crowd) counts() SubjectCounts {
	n := SubjectCounts{AtLeast: c.isFull}
	for _, got := range c.fates {
		n.add(got)
	}
	return n
}

// add counts a subject with a fate.
func (n *SubjectCounts) add(got fate) {
	for _, of := range []struct {
		fate fate
		to   *uint64
	}{
		{askedBefore, &n.Before.Asked}, {deniedBefore, &n.Before.Denied}, {shadowedBefore, &n.Before.Shadowed},
		{askedAfter, &n.After.Asked}, {deniedAfter, &n.After.Denied}, {shadowedAfter, &n.After.Shadowed},
	} {
		if got&of.fate != 0 {
			*of.to++
		}
	}
	switch got & (wasDenied | isDenied) {
	case isDenied:
		if got&deniedAfter != 0 {
			n.NewlyDenied++
		}
	case wasDenied:
		if got&deniedBefore != 0 {
			n.NewlyAllowed++
		}
	}
}

// plus adds the counts of another rule.
func (n *SubjectCounts) plus(other *SubjectCounts) {
	for _, of := range []struct{ to, from *SubjectTally }{{&n.Before, &other.Before}, {&n.After, &other.After}} {
		of.to.Asked += of.from.Asked
		of.to.Denied += of.from.Denied
		of.to.Shadowed += of.from.Shadowed
	}
	n.NewlyDenied += other.NewlyDenied
	n.NewlyAllowed += other.NewlyAllowed
	n.AtLeast = n.AtLeast || other.AtLeast
}

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
