package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// table is printed as aligned text or as Markdown. The first columns hold
// text, the others numbers.
type table struct {
	texts   int
	columns []column
	lines   [][]string
}

// column has a title, under a title that it shares with its neighbours.
type column struct{ shared, title string }

func (t *table) add(cells ...string) { t.lines = append(t.lines, cells) }

const gap = "  "

func (t *table) print(w io.Writer, markdown bool) {
	if markdown {
		t.printMarkdown(w)
		return
	}
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, line := range t.lines {
			if i < len(line) {
				widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
			}
		}
	}
	if shared := t.sharedTitles(widths); shared != "" {
		fmt.Fprintln(w, shared)
	}
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, line := range append([][]string{titles}, t.lines...) {
		fmt.Fprintln(w, t.align(line, widths))
	}
}

func (t *table) align(line []string, widths []int) string {
	var b strings.Builder
	for i, cell := range line {
		space := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if i < t.texts {
			b.WriteString(cell + space + gap)
		} else {
			b.WriteString(space + cell + gap)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// sharedTitles is the line above the titles; a title stands over the first of
// its columns, which it may widen.
func (t *table) sharedTitles(widths []int) string {
	var b strings.Builder
	for i := 0; i < len(t.columns); {
		shared, width, last := t.columns[i].shared, 0, i
		for ; last < len(t.columns) && t.columns[last].shared == shared; last++ {
			width += widths[last] + len(gap)
		}
		if missing := utf8.RuneCountInString(shared) + len(gap) - width; missing > 0 {
			widths[i] += missing
			width += missing
		}
		fmt.Fprintf(&b, "%*s%s", width-len(gap), shared, gap)
		i = last
	}
	return strings.TrimRight(b.String(), " ")
}

func (t *table) printMarkdown(w io.Writer) {
	var titles, rules []string
	for i, c := range t.columns {
		titles = append(titles, strings.TrimSpace(c.shared+" "+c.title))
		if i < t.texts {
			rules = append(rules, "---")
		} else {
			rules = append(rules, "---:")
		}
	}
	for _, line := range append([][]string{titles, rules}, t.lines...) {
		for len(line) < len(t.columns) {
			line = append(line, "")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}

// number is with so many decimals, or - when it is not known.
func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// latency is of microseconds, which need no decimals when they are many.
func latency(us float64) string {
	if us < 99.5 {
		return number(us, 1)
	}
	return number(us, 0)
}
