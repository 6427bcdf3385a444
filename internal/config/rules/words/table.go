package words

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

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

// WriteTable writes the domains, their rules and their limits in plain words, one line
// per limit. It writes each line as soon as it is made: there may be 100,000. now is for
// limits by calendar, which say when they are reset.
func WriteTable(w io.Writer, r *rules.Set, now time.Time) error {
	out := bufio.NewWriter(w)
	for i, d := range r.Domains() {
		if i > 0 {
			_ = out.WriteByte('\n') // the next write returns the error
		}
		if err := writeDomain(out, d, now); err != nil {
			return err
		}
	}
	return out.Flush()
}

func writeDomain(w *bufio.Writer, d *rules.Domain, now time.Time) error {
	head := fmt.Sprintf("domain %s (%s)", yamlfile.Printable(d.Name), yamlfile.FileLine(d.File, d.Line))
	if d.HashTag != "" {
		head += ", keys placed by " + yamlfile.Printable(d.HashTag)
	}
	if d.Unmatched == rules.DenyUnmatched {
		head += ", denies what has no rule"
	}
	if len(d.Rules()) == 0 {
		head += "\n  no limits"
	}
	if _, err := fmt.Fprintln(w, head); err != nil || len(d.Rules()) == 0 {
		return err
	}
	var widths tableRow[int]
	for row := range rowsOf(d, now) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	widths[len(widths)-1] = 0 // nothing follows the last column
	for row := range rowsOf(d, now) {
		if err := writeRow(w, &row, &widths); err != nil {
			return err
		}
	}
	return nil
}

// tableRow has one item per column: RULE, NAME, ALGORITHM, LIMIT.
type tableRow[T any] [4]T

// writeRow writes a line, with two blanks between columns.
func writeRow(w *bufio.Writer, row *tableRow[string], widths *tableRow[int]) error {
	for i, cell := range row {
		_, _ = w.WriteString("  ")
		_, _ = w.WriteString(cell)
		for range widths[i] - utf8.RuneCountInString(cell) {
			_ = w.WriteByte(' ')
		}
	}
	return w.WriteByte('\n') // returns the error of all writes before
}

// rowsOf returns the lines of the domain's table.
func rowsOf(d *rules.Domain, now time.Time) iter.Seq[tableRow[string]] {
	return func(yield func(tableRow[string]) bool) {
		if !yield(tableRow[string]{"RULE", "NAME", "ALGORITHM", "LIMIT"}) {
			return
		}
		for _, rule := range d.Rules() {
			path, notes := rule.Path(), notesOf(rule)
			if rule.Unlimited && !yield(tableRow[string]{path, nameCell(rule.Name), "-", "unlimited" + replacesNote(rule, 0) + notes}) {
				return
			}
			for i, l := range rule.Limits {
				if !yield(tableRow[string]{path, nameCell(l.Name), l.Algorithm.String(), Limit(l) + NextReset(l, now) + replacesNote(rule, i) + notes}) {
					return
				}
				path, notes = "", "" // once for all limits of a rule
			}
		}
	}
}

// notesOf returns what holds for all limits of a rule: "; shadow, shared by all values of
// the pattern".
func notesOf(r *rules.Rule) string {
	var notes []string
	for _, n := range []struct {
		set  bool
		text string
	}{
		{r.IsDefaultPlan(), "the default"},
		{r.ShadowMode, "shadow"},
		{r.QuotaMode, "quota"},
		{r.Shared != nil, "shared by all values of the pattern"},
		{r.Networks() != nil, networksNote(r.Networks())},
		{r.DetailedMetric, "counted by all values"},
		{len(r.CountedEntries) > 0 && !r.DetailedMetric, "counted by value"},
		{r.Metadata != nil, "with metadata " + yamlfile.Commas(yamlfile.Printables(slices.Sorted(maps.Keys(r.Metadata))))},
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

// networksNote says how addresses are counted.
func networksNote(n *rules.Networks) string {
	switch {
	case n == nil:
		return ""
	case n.IsShared:
		return "shared by all addresses of a network"
	case n.Lengths == network.Lengths{}:
		return "by address"
	}
	length := func(bits uint8, all int) string {
		if bits == 0 {
			return strconv.Itoa(all)
		}
		return strconv.Itoa(int(bits))
	}
	return "by network, /" + length(n.Lengths.IPv4, 32) + " of IPv4 and /" + length(n.Lengths.IPv6, 128) + " of IPv6"
}

// replacesNote says which limits a limit of the rule replaces.
func replacesNote(r *rules.Rule, i int) string {
	if r.Replaces == nil || len(r.Replaces[i]) == 0 {
		return ""
	}
	return "; replaces " + yamlfile.Commas(yamlfile.Printables(r.Replaces[i]))
}

func nameCell(name string) string {
	if name == "" {
		return "-"
	}
	return yamlfile.Printable(name)
}
