package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// WriteTable writes the domains, their rules and their limits in plain words,
// a line for each limit.
func (r *Rules) WriteTable(w io.Writer) error {
	for i, d := range r.sorted {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := d.writeTable(w); err != nil {
			return err
		}
	}
	return nil
}

func (d *Domain) writeTable(w io.Writer) error {
	head := fmt.Sprintf("domain %s (%s)", yamlfile.Printable(d.Name), lineOf(d.File, d.Line))
	if d.HashTag != "" {
		head += ", keys placed by " + yamlfile.Printable(d.HashTag)
	}
	if d.Unmatched == DenyUnmatched {
		head += ", denies what has no rule"
	}
	if len(d.rules) == 0 {
		_, err := fmt.Fprintln(w, head+"\n  no limits")
		return err
	}
	if _, err := fmt.Fprintln(w, head); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, "  "+strings.Join(cells, "\t")) }
	row("RULE", "NAME", "ALGORITHM", "LIMIT")
	for _, rule := range d.rules {
		path := rule.Path()
		notes := rule.notes()
		if rule.Unlimited {
			row(path, nameCell(rule.Name), "-", "unlimited"+rule.replacesNote(0)+notes)
		}
		for i, l := range rule.Limits {
			row(path, nameCell(l.Name), l.Algorithm.String(), Describe(l)+rule.replacesNote(i)+notes)
			path, notes = "", "" // once for all limits of a rule
		}
	}
	return t.Flush()
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

// Describe says in plain words how much a limit allows: "10 requests a minute,
// bursts of 20". It adds the failure mode, if the limit has one.
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
	text := yamlfile.Plural(l.Requests, "request") + " " + perPeriod(l.Period)
	switch {
	case l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.SlidingLog:
		text = yamlfile.Plural(l.Requests, "request") + " in any " + span(l.Period)
	case l.Algorithm.IsBucket() && l.Burst != l.Requests:
		text += fmt.Sprintf(", bursts of %d", l.Burst)
	}
	if l.Algorithm == bucket.SlidingWindow && l.SubWindows != bucket.DefaultSubWindows {
		text += fmt.Sprintf(", in %s", yamlfile.Plural(l.SubWindows, "sub-window"))
	}
	if l.Postpaid == bucket.PostpaidAlways {
		text += ", charged afterwards"
	}
	return text
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
	for _, u := range wordUnits {
		if period == u.length {
			if u.name == "hour" {
				return "an hour"
			}
			return "a " + u.name
		}
	}
	return "every " + span(period)
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
