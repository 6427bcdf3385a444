package replay

import (
	"fmt"
	"io"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// numbers formats numbers of the limit for people.
func (f *Fit) numbers(requests, burst int64) string {
	per := period.Format(f.limit.Period)
	if c := f.limit.Calendar; c.Unit != bucket.NoCalendar {
		per = words.Calendar(c)
	}
	text := Grouped(requests) + " per " + per
	if burst != 0 && burst != requests {
		text += ", burst " + Grouped(burst)
	}
	return text
}

// needed formats what a subject would need.
func (f *Fit) needed(n *Need) string {
	if n.Requests == 0 {
		return "more than a file may have"
	}
	return f.numbers(n.Requests, n.Burst)
}

// FitGoal says what the proposed numbers are for.
func (r *Report) FitGoal() string {
	text := percentOf(r.fitShare) + " of " + r.Fits[0].By.String() + "s pass"
	if r.Fits[0].By == BySubject {
		text += " whole"
	}
	return text
}

func (r *Report) writeFits(w io.Writer) {
	fmt.Fprintf(w, "\nsmallest limits with which %s\n  RULE\tLIMIT\tNOW\tSUBJECTS\tREQUESTS\tPROPOSED\tSUBJECTS\tREQUESTS\n", r.FitGoal())
	for i := range r.Fits {
		f := &r.Fits[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t", ruleText(f.Rule), yamlfile.Printable(f.Limit), f.numbers(f.Requests, f.Burst), f.whole(f.PassedWhole), percentOf(f.Passed))
		if f.Problem != "" {
			fmt.Fprintf(w, "none: %s\t\t\n", f.Problem)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.numbers(f.ProposedRequests, f.ProposedBurst), f.whole(f.ProposedPassedWhole), percentOf(f.ProposedPassed))
	}
	r.writeBusiest(w)
	for i := range r.Fits {
		r.Fits[i].writeLeftOut(w)
	}
}

// Driven returns the fits whose numbers are those of their busiest subject.
func (r *Report) Driven() (fits []*Fit) {
	for i := range r.Fits {
		if r.Fits[i].Busiest != nil {
			fits = append(fits, &r.Fits[i])
		}
	}
	return fits
}

// WhyDriven says why that is so.
func (r *Report) WhyDriven() string {
	if r.fitShare == 1 {
		return "driven by the busiest, since 100% leaves nobody out"
	}
	return "driven by the busiest, since of so few subjects not one may be left out"
}

func (r *Report) writeBusiest(w io.Writer) {
	fits := r.Driven()
	if len(fits) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n  RULE\tLIMIT\tSUBJECTS\tWITHOUT IT\tASKED\tDOMAIN\tBUSIEST\n", r.WhyDriven())
	for _, f := range fits {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", ruleText(f.Rule), yamlfile.Printable(f.Limit), Grouped(f.Subjects), f.without(),
			Grouped(f.Busiest.Asked), spelling.ShellWord(f.Domain), spelling.ShellWord(f.Busiest.Subject))
	}
}

// without says what all except the busiest need.
func (f *Fit) without() string {
	if f.WithoutRequests == 0 {
		return "-"
	}
	return f.numbers(f.WithoutRequests, f.WithoutBurst)
}

// whole says how many subjects pass entirely.
func (f *Fit) whole(n int) string { return Grouped(n) + " of " + Grouped(f.Subjects) }

// writeLeftOut lists the subjects left out.
func (f *Fit) writeLeftOut(w io.Writer) {
	if len(f.LeftOut) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n  NEEDS\tASKED\tSUBJECT\n", f.leftOut())
	for i := range f.LeftOut {
		n := &f.LeftOut[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.needed(n), Grouped(n.Asked), spelling.ShellWord(n.Subject))
	}
}

// leftOut says how many subjects are left out, and how many of them are named.
func (f *Fit) leftOut() string {
	n := f.Subjects - f.ProposedPassedWhole
	text := fmt.Sprintf("left out by %s, %s of the domain %s: %s of %s",
		ruleText(f.Rule), yamlfile.Printable(f.Limit), yamlfile.Printable(f.Domain), Grouped(n), plural(uint64(f.Subjects), "subject"))
	if n > len(f.LeftOut) {
		text += fmt.Sprintf(", of whom these %d need most", len(f.LeftOut))
	}
	return text
}
