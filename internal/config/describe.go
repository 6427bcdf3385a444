package config

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// WriteTable writes the domains, their rules and their limits in plain words,
// a line for each limit. It writes each line as it is made: there may be 100,000.
func (r *Rules) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	for i, d := range r.sorted {
		if i > 0 {
			_ = out.WriteByte('\n') // the error is that of the next write
		}
		if err := d.writeTable(out); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (d *Domain) writeTable(w *bufio.Writer) error {
	head := fmt.Sprintf("domain %s (%s)", yamlfile.Printable(d.Name), lineOf(d.File, d.Line))
	if d.HashTag != "" {
		head += ", keys placed by " + yamlfile.Printable(d.HashTag)
	}
	if d.Unmatched == DenyUnmatched {
		head += ", denies what has no rule"
	}
	if len(d.rules) == 0 {
		head += "\n  no limits"
	}
	if _, err := fmt.Fprintln(w, head); err != nil || len(d.rules) == 0 {
		return err
	}
	var widths tableRow[int]
	for row := range d.rows() {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	widths[len(widths)-1] = 0 // nothing stands behind the last column
	for row := range d.rows() {
		if err := writeRow(w, &row, &widths); err != nil {
			return err
		}
	}
	return nil
}

// tableRow has what there is of each column: RULE, NAME, ALGORITHM, LIMIT.
type tableRow[T any] [4]T

// writeRow writes a line, whose columns are two blanks apart.
func writeRow(w *bufio.Writer, row *tableRow[string], widths *tableRow[int]) error {
	for i, cell := range row {
		_, _ = w.WriteString("  ")
		_, _ = w.WriteString(cell)
		for range widths[i] - utf8.RuneCountInString(cell) {
			_ = w.WriteByte(' ')
		}
	}
	return w.WriteByte('\n') // whose error is that of all before
}

// rows returns the lines of the domain's table.
func (d *Domain) rows() iter.Seq[tableRow[string]] {
	return func(yield func(tableRow[string]) bool) {
		if !yield(tableRow[string]{"RULE", "NAME", "ALGORITHM", "LIMIT"}) {
			return
		}
		for _, rule := range d.rules {
			path, notes := rule.Path(), rule.notes()
			if rule.Unlimited && !yield(tableRow[string]{path, nameCell(rule.Name), "-", "unlimited" + rule.replacesNote(0) + notes}) {
				return
			}
			for i, l := range rule.Limits {
				if !yield(tableRow[string]{path, nameCell(l.Name), l.Algorithm.String(), Describe(l) + rule.replacesNote(i) + notes}) {
					return
				}
				path, notes = "", "" // once for all limits of a rule
			}
		}
	}
}

// notes returns what is true of all limits of a rule: "; shadow, shared by all
// values of the pattern".
func (r *Rule) notes() string {
	var notes []string
	for _, n := range []struct {
		set  bool
		text string
	}{
		{r.isDefaultPlan(), "the default"},
		{r.ShadowMode, "shadow"},
		{r.QuotaMode, "quota"},
		{r.ShareThreshold, "shared by all values of the pattern"},
		{r.DetailedMetric, "counted by all values"},
		{r.ValueToMetric && !r.DetailedMetric, "counted by value"},
		{r.Metadata != nil, "with metadata " + yamlfile.Commas(printables(slices.Sorted(maps.Keys(r.Metadata))))},
	} {
		if n.set {
			notes = append(notes, n.text)
		}
	}
	if notes == nil {
		return ""
	}
	return "; " + yamlfile.Commas(notes)
}

// replacesNote says which limits a limit of the rule replaces.
func (r *Rule) replacesNote(i int) string {
	if r.Replaces == nil || len(r.Replaces[i]) == 0 {
		return ""
	}
	return "; replaces " + yamlfile.Commas(printables(r.Replaces[i]))
}

func printables(names []string) []string {
	shown := make([]string, len(names))
	for i := range names {
		shown[i] = yamlfile.Printable(names[i])
	}
	return shown
}

func nameCell(name string) string {
	if name == "" {
		return "-"
	}
	return yamlfile.Printable(name)
}

// Describe says in plain words how much a limit allows: "20 at once, then one every
// 6s" for a bucket, "1,000 requests a day" for a window. It adds the failure mode, if
// the limit has one.
func Describe(l *bucket.Limit) string {
	text := DescribeNumbers(l) + EnforcementNote(l)
	if l.OnStoreFailure != bucket.FailureDefault {
		text += "; on store failure: " + l.OnStoreFailure.String()
	}
	return text
}

// EnforcementNote says whom a limit does not deny: "; shadow", or "; enforced for 10%
// of the subjects". It is empty for a limit that denies all.
func EnforcementNote(l *bucket.Limit) string {
	switch l.Unenforced {
	case 0:
		return ""
	case bucket.AllSubjects:
		return "; shadow"
	}
	return "; enforced for " + enforcedShare(l) + " of the subjects"
}

// enforcedShare returns for how many of the subjects a limit is enforced, as a limits
// file has it.
func enforcedShare(l *bucket.Limit) string {
	return strconv.FormatFloat(float64(bucket.AllSubjects-l.Unenforced)/(bucket.AllSubjects/100), 'f', -1, 64) + "%"
}

// DescribeNumbers is Describe without the failure mode and whom it denies.
func DescribeNumbers(l *bucket.Limit) string {
	if l.Requests == 0 {
		return "denies always"
	}
	var text string
	switch {
	case l.Algorithm.IsBucket():
		text = ShowNumber(l.Burst) + " at once, then " + refill(l)
	case l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.SlidingLog:
		text = requests(l) + " in any " + span(l.Period)
	default:
		text = requests(l) + " " + perPeriod(l.Period)
	}
	if l.Algorithm == bucket.SlidingWindow && l.SubWindows != bucket.DefaultSubWindows {
		text += fmt.Sprintf(", in %s", yamlfile.Plural(l.SubWindows, "sub-window"))
	}
	if l.Postpaid == bucket.PostpaidAlways {
		text += ", charged afterwards"
	}
	return text
}

// requests returns "1 request" or "1,000 requests".
func requests(l *bucket.Limit) string {
	if l.Requests == 1 {
		return "1 request"
	}
	return ShowNumber(l.Requests) + " requests"
}

// wordUnits are the spans of time that have a name, longest first.
var wordUnits = [...]struct {
	length time.Duration
	name   string
}{
	{365 * 24 * time.Hour, "year"},
	{7 * 24 * time.Hour, "week"},
	{24 * time.Hour, "day"},
	{time.Hour, "hour"},
	{time.Minute, "minute"},
	{time.Second, "second"},
	{time.Millisecond, "millisecond"},
}

// perPeriod returns "a minute" or "every 90 seconds".
func perPeriod(period time.Duration) string {
	if name := namedPeriod(period); name != "" {
		return name
	}
	return "every " + span(period)
}

// namedPeriod returns "a minute", or nothing for a period without a name.
func namedPeriod(period time.Duration) string {
	for _, u := range wordUnits {
		switch {
		case period != u.length:
		case u.name == "hour":
			return "an hour"
		default:
			return "a " + u.name
		}
	}
	return ""
}

// span returns "minute" or "90 seconds": in the largest unit that divides the
// period.
func span(period time.Duration) string {
	for _, u := range wordUnits {
		n := period / u.length
		switch {
		case period%u.length != 0:
		case n == 1:
			return u.name
		case u.name != "week" && u.name != "year":
			return yamlfile.Plural(int64(n), u.name)
		}
	}
	return period.String()
}
