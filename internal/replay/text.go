package replay

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var tables bytes.Buffer
	w := tabwriter.NewWriter(&tables, 0, 8, 2, ' ', 0)
	r.writeTotals(w)
	if r.Comparison != nil {
		r.Comparison.write(w)
	}
	r.writeRules(w)
	r.writeSubjects(w, "denied most", r.Denied, func(s *Subject) uint64 { return s.Denied })
	if r.Recorded && r.Comparison == nil {
		r.writeSubjects(w, "newly denied", r.NewlyDenied, func(s *Subject) uint64 { return s.NewlyDenied })
		r.writeSubjects(w, "newly allowed", r.NewlyAllowed, func(s *Subject) uint64 { return s.NewlyAllowed })
	}
	if err := w.Flush(); err != nil {
		return err
	}
	// Empty cells at the end of a row are blanks.
	for line := range bytes.Lines(tables.Bytes()) {
		if _, err := out.Write(append(bytes.TrimRight(line, " \n"), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) writeTotals(w io.Writer) {
	if text := r.Warning(); text != "" {
		fmt.Fprintf(w, "WARNING: %s\n\n", text)
	}
	fmt.Fprint(w, plural(r.Requests, "request"))
	if !r.First.IsZero() {
		fmt.Fprintf(w, " from %s to %s", r.Clock(r.First), r.Clock(r.Last))
	}
	fmt.Fprintln(w)
	for _, l := range r.About() {
		writeList(w, l.What, l.Words)
	}
	fmt.Fprintf(w, "denied\t%s\n", r.change(Counts{Asked: r.Requests, Denied: r.DeniedBefore}, Counts{Asked: r.Requests, Denied: r.DeniedAfter}, share))
	fmt.Fprintf(w, "subjects denied\t%s\n", r.change(r.Subjects.Before, r.Subjects.After, shareOf))
	if r.Recorded && r.Comparison == nil {
		fmt.Fprintf(w, "newly denied\t%s, %s\n", plural(r.RequestsLost, "request"), plural(r.Subjects.NewlyDenied, "subject"))
		fmt.Fprintf(w, "newly allowed\t%s, %s\n", plural(r.RequestsWon, "request"), plural(r.Subjects.NewlyAllowed, "subject"))
	}
	for _, n := range []struct {
		what  string
		count uint64
	}{
		{"recorded while the store was away, counted apart", r.Degraded},
		{"failed, left out", r.Failed},
		{"lines passed over", r.Unread},
		{"of subjects beyond --max-keys, not counted", r.Uncounted},
	} {
		if n.count > 0 {
			fmt.Fprintf(w, "%s\t%s\n", n.what, grouped(n.count))
		}
	}
	if domains := r.Unruled(); len(domains) > 0 {
		fmt.Fprintf(w, "no rule any more\tin %s\n", spelling.Visible(yamlfile.Commas(domains)))
	}
}

// listWidth is the maximum length of the lines of a list, unless an item is longer.
const listWidth = 60

// writeList writes words after what they are, on as many lines as they need.
func writeList(w io.Writer, what string, words []string) {
	line := ""
	for _, word := range words {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > listWidth {
			fmt.Fprintf(w, "%s\t%s\n", what, line)
			what, line = "", ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	fmt.Fprintf(w, "%s\t%s\n", what, line)
}

// Unruled returns the domains in which no request matches a rule any more: most often
// --limits is one file of several.
func (r *Report) Unruled() []string {
	var lost []string
	for i := 0; i < len(r.Rules); {
		domain, had, has := r.Rules[i].Domain, false, false
		for ; i < len(r.Rules) && r.Rules[i].Domain == domain; i++ {
			rule := &r.Rules[i]
			had = had || rule.Rule != withoutRule && rule.Before.Asked > 0
			has = has || rule.Rule != withoutRule && rule.After.Asked > 0
		}
		if had && !has {
			lost = append(lost, domain)
		}
	}
	return lost
}

// change says how many were denied, before and after, in the words of a function.
func (r *Report) change(before, after Counts, words func(denied, asked uint64) string) string {
	now := words(after.Denied, after.Asked)
	if !r.Recorded {
		return now
	}
	return fmt.Sprintf("%s before, %s after", words(before.Denied, before.Asked), now)
}

// share formats a number and its share of all.
func share(n, all uint64) string { return fmt.Sprintf("%s (%s)", grouped(n), percent(n, all)) }

// shareOf is share with the number of all.
func shareOf(n, all uint64) string {
	return fmt.Sprintf("%s of %s (%s)", grouped(n), grouped(all), percent(n, all))
}

func percent(n, all uint64) string {
	if all == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.4g%%", 100*float64(n)/float64(all))
}

func (k *Comparison) write(w io.Writer) {
	fmt.Fprintf(w, "decided as recorded\t%s\ndecided otherwise\t%s\n", grouped(k.Equal), grouped(k.Different))
	if k.Remembered > 0 {
		fmt.Fprintf(w, "denied from memory, not compared\t%s\n", grouped(k.Remembered))
	}
	for _, d := range k.First {
		fmt.Fprintf(w, "  %s:%d\t%s: recorded %s, replayed %s\n", d.Log, d.Line, spelling.Visible(d.What), d.Recorded, d.Replayed)
	}
}

func (r *Report) writeRules(w io.Writer) {
	domain := ""
	for i := range r.Rules {
		rule := &r.Rules[i]
		if i == 0 || rule.Domain != domain {
			domain = rule.Domain
			fmt.Fprintf(w, "\n%s\n", domainTitle(domain))
			if r.Recorded {
				fmt.Fprintln(w, "  RULE\tLIMIT\tASKED\tDENIED BEFORE\tAFTER\tNEWLY\tNO MORE")
			} else {
				fmt.Fprintln(w, "  RULE\tLIMIT\tASKED\tDENIED")
			}
		}
		r.writeRule(w, rule)
	}
}

func domainTitle(domain string) string {
	if domain == otherDomains {
		return "other domains"
	}
	return "domain " + yamlfile.Printable(domain)
}

func (r *Report) writeRule(w io.Writer, rule *RuleReport) {
	cells := func(t, then *Counts) string {
		asked := grouped(max(t.Asked, then.Asked))
		if !r.Recorded {
			return asked + "\t" + denialsText(t)
		}
		return asked + "\t" + denialsText(then) + "\t" + denialsText(t)
	}
	changes := func(denied, allowed uint64) string {
		if !r.Recorded {
			return ""
		}
		return "\t" + grouped(denied) + "\t" + grouped(allowed)
	}
	subjects := &rule.Subjects
	fmt.Fprintf(w, "  %s\t\t%s%s\n", ruleText(rule.Rule), cells(&rule.After.Counts, &rule.Before.Counts), changes(rule.NewlyDenied, rule.NewlyAllowed))
	fmt.Fprintf(w, "  \t%s\t%s%s\n", subjectsWord, cells(&subjects.After, &subjects.Before), changes(subjects.NewlyDenied, subjects.NewlyAllowed))
	for j := range rule.Limits {
		l := &rule.Limits[j]
		fmt.Fprintf(w, "  \t%s\t%s", yamlfile.Printable(l.Name), cells(&l.After.Counts, &l.Before.Counts))
		if r.Recorded {
			fmt.Fprint(w, "\t\t") // otherwise the columns of the rules end here
		}
		fmt.Fprintln(w)
	}
}

// subjectsWord stands in place of a limit in the row of a rule's subjects.
const subjectsWord = "(subjects)"

// denialsText says how many were denied, or would have been by a limit on trial;
// nothing if nothing was asked.
func denialsText(t *Counts) string {
	switch {
	case t.Asked == 0:
		return "-"
	case t.Shadowed > 0:
		return fmt.Sprintf("%s, %s shadowed", share(t.Denied, t.Asked), grouped(t.Shadowed))
	}
	return share(t.Denied, t.Asked)
}

func ruleText(rule string) string {
	if rule == withoutRule {
		return "(no rule)"
	}
	return spelling.Visible(rule)
}

func (r *Report) writeSubjects(w io.Writer, title string, subjects []Subject, by func(*Subject) uint64) {
	if len(subjects) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n  TIMES\tFIRST DENIED\tLONGEST LOCK-OUT\tDOMAIN\tRULE\tSUBJECT\n", title)
	for i := range subjects {
		s := &subjects[i]
		first, longest := "-", "-"
		if !s.FirstDenied.IsZero() {
			first = r.TimeOfDay(s.FirstDenied)
			longest = s.LongestLockout.String()
			if s.LongestLockout > 0 {
				longest += " from " + r.TimeOfDay(s.LockedOutAt)
			}
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", grouped(by(s)), first, longest, spelling.ShellWord(s.Domain), ruleText(s.Rule), spelling.ShellWord(s.Subject))
	}
}

// Clock formats a time in the log: to the millisecond if the log is short.
func (r *Report) Clock(t time.Time) string {
	return t.Format(time.DateOnly) + " " + r.clockOfDay(t)
}

// TimeOfDay formats a time in the log, with the date if there are several.
func (r *Report) TimeOfDay(t time.Time) string {
	if r.First.Format(time.DateOnly) == r.Last.Format(time.DateOnly) {
		return r.clockOfDay(t)
	}
	return r.Clock(t)
}

func (r *Report) clockOfDay(t time.Time) string {
	if r.Last.Sub(r.First) < time.Minute {
		return t.Format("15:04:05.000")
	}
	return t.Format(time.TimeOnly)
}

// grouped formats a number for people, with thousands separators, as in 12,300.
func grouped[N int | int64 | uint64](n N) string {
	return words.Thousands(int64(n))
}

// plural returns "1 request" or "12,300 requests".
func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}
