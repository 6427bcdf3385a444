package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// report gathers and prints all results.
type report struct {
	results  []result // in the order of the rows
	compared []comparison
	overload []overloaded
	markdown bool
}

// measure adds what the rows of groups do in a lab.
func (r *report) measure(ctx context.Context, l *lab, groups []group, p plan) error {
	at := 0
	for _, g := range groups {
		for _, row := range g {
			l.progress("%s: %s", row.name, row.says)
		}
		results, err := l.measure(ctx, g, p)
		if err != nil {
			return fmt.Errorf("%s: %w", g[0].name, err)
		}
		for _, one := range results {
			if at == len(r.results) {
				r.results = append(r.results, one)
			} else {
				r.results[at].join(one)
			}
			at++
		}
	}
	return nil
}

func (r report) heading(w io.Writer, text string) {
	if r.markdown {
		fmt.Fprintf(w, "\n**%s**\n\n", text)
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", text)
}

func (r report) print(w io.Writer) {
	r.heading(w, "The daemon, and what it is to the bare gRPC servers, round by round (req/s: more is better; the rest: less)")
	r.daemonTable().print(w, r.markdown)
	r.heading(w, "What the rows tell")
	r.rowsTable().print(w, r.markdown)
	r.heading(w, "Each server of each row, and what the load generator itself used")
	r.serversTable().print(w, r.markdown)
	if len(r.overload) > 0 {
		r.heading(w, fmt.Sprintf("Overload: %d times the daemon's peak arrives, each with %v to be answered in", overloadFactor, overloadDeadline))
		overloadTable(r.overload).print(w, r.markdown)
	}
	if targets := judge(r.results); len(targets) > 0 {
		r.heading(w, "Targets")
		targetsTable(targets).print(w, r.markdown)
	}
	problems := r.problems()
	if len(problems) > 0 {
		r.heading(w, "Wrong or missing answers")
	}
	for _, p := range problems {
		fmt.Fprintln(w, "-", p.text)
	}
}

func (r report) problems() []problem {
	seen := make(map[problem]bool)
	var all []problem
	for _, one := range r.results {
		for _, p := range one.problems {
			if !seen[p] { // the servers that a group's rows share
				all = append(all, p)
			}
			seen[p] = true
		}
	}
	return all
}

func (r report) daemonTable() *table {
	t := &table{texts: 1, columns: []column{
		{"", "row"}, {"", "req/s"},
		{"latency, us", "p50"}, {"latency, us", "p99"}, {"latency, us", "p99.9"},
		{"CPU us/request", "daemon"}, {"CPU us/request", "Redis"},
		{"Redis per 1,000", "scripts"}, {"Redis per 1,000", "cmds"},
		{"CPU x", "bare"}, {"CPU x", "tuned"},
		{"p99 x", "bare"}, {"p99 x", "tuned"},
		{"req/s x", "bare"}, {"req/s x", "tuned"},
	}}
	for _, one := range r.results {
		d, b, u := medians(one.daemon), ratios(one.daemon, one.bare), ratios(one.daemon, one.tuned)
		t.add(one.row.name, number(d.rate, 0),
			latency(d.p50), latency(d.p99), latency(d.p999),
			number(d.cpu, 1), number(d.redis, 2), number(d.scripts, 1), number(d.commands, 1),
			number(b.cpu, 2), number(u.cpu, 2), number(b.p99, 2), number(u.p99, 2), number(b.rate, 2), number(u.rate, 2))
	}
	return t
}

func (r report) rowsTable() *table {
	t := &table{texts: 2, columns: []column{{"", "row"}, {"", "tells"}}}
	for _, one := range r.results {
		says := one.row.says
		if len(one.rates) > 0 {
			says += fmt.Sprintf("; %.0f a second", median(one.rates))
		}
		if f := one.filled; f.keys > 0 {
			says += fmt.Sprintf("; %.0f bytes of live heap a key, %.0f resident", f.perKey(f.heap), f.perKey(f.resident))
		}
		if asks := medians(one.daemon).asks; !math.IsNaN(asks) {
			says += fmt.Sprintf("; %s requests to the daemon per 1,000", number(asks, 1))
		}
		t.add(one.row.name, says)
	}
	return t
}

func (r report) serversTable() *table {
	t := &table{texts: 2, columns: []column{
		{"", "row"}, {"", "server"}, {"", "req/s"},
		{"latency, us", "p50"}, {"latency, us", "p99"}, {"latency, us", "p99.9"},
		{"CPU us/request", "server"}, {"CPU us/request", "Redis"}, {"CPU us/request", "generator"},
	}}
	for _, one := range r.results {
		add := func(name string, slices []measures) {
			m := medians(slices)
			t.add(one.row.name, name, number(m.rate, 0), latency(m.p50), latency(m.p99), latency(m.p999),
				number(m.cpu, 1), number(m.redis, 2), number(m.own, 1))
		}
		add(nameDaemon, one.daemon)
		add(nameBare, one.bare)
		add(nameTuned, one.tuned)
		for i, m := range one.compared {
			add(r.compared[i].name, m)
		}
	}
	return t
}

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

// number returns v with this many decimals, or more if it is so small; - if it is unknown.
func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	for v > 0 && v < math.Pow10(-decimals) {
		decimals++
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// latency returns microseconds, without decimals when there are many.
func latency(us float64) string {
	if us < 99.5 {
		return number(us, 1)
	}
	return number(us, 0)
}

// target is what a number is meant to be.
type target struct {
	what, unit string
	found      float64
	limit      float64
	orEqual    bool
	isLeast    bool // the limit, rather than the most
}

func (t target) met() bool {
	if t.isLeast {
		return t.found >= t.limit
	}
	return t.found < t.limit || t.orEqual && t.found == t.limit
}

// judge returns the targets, with NaN where the row was not measured. It returns none
// when no row has a target.
func judge(results []result) []target {
	of := func(name string) result {
		for _, r := range results {
			if r.row.name == name {
				return r
			}
		}
		return result{}
	}
	mem, many := of(rowMemory), of(rowMillion)
	batched, alone := of(rowRedis), of(rowRedisUnbatched)
	one, oneSingle := of(rowOne), of(rowOneUnbatched)
	half := of(rowHalfPeak)
	leased, over := of(rowLeaseHot), of(rowLeaseOver)
	perKey := math.NaN()
	if many.filled.keys > 0 {
		perKey = many.filled.perKey(many.filled.heap)
	}
	targets := []target{
		{what: "memory store: daemon CPU, of bare tuned", unit: "x", found: ratios(mem.daemon, mem.tuned).cpu, limit: 1.15, orEqual: true},
		{what: "one Redis, even keys: daemon CPU, of bare tuned", unit: "x", found: ratios(batched.daemon, batched.tuned).cpu, limit: 1.4, orEqual: true},
		{what: "one Redis, even keys: Redis CPU a decision", unit: "us", found: medians(batched.daemon).redis, limit: 5, orEqual: true},
		{what: "one Redis, even keys: Redis CPU, of unbatched", unit: "x", found: ratios(batched.daemon, alone.daemon).redis, limit: 0.5},
		{what: "hot key under its limit: scripts per 1,000 requests", found: medians(of(rowHotUnder).daemon).scripts, limit: 40},
		{what: "hot key over its limit: scripts per 1,000 requests", found: medians(of(rowHotOver).daemon).scripts, limit: 2},
		{what: "one caller on Redis: p50, of unbatched", unit: "x", found: ratios(one.daemon, oneSingle.daemon).p50, limit: slower, orEqual: true},
		{what: "half the peak: p99, of bare", unit: "x", found: ratios(half.daemon, half.bare).p99, limit: 5},
		{what: "TakeStream, memory: daemon CPU a decision, of a call to bare tuned", unit: "x", found: ratios(of(rowStream).daemon, of(rowStream).tuned).cpu, limit: 0.4, orEqual: true},
		{what: "1 % of the requests sampled: daemon CPU, of that without spans", unit: "x", found: ratios(of(rowTraced).daemon, of(rowUntraced).daemon).cpu, limit: 1.02, orEqual: true},
		{what: "traces, tops and a log of denials: daemon CPU, of that without", unit: "x", found: ratios(of(rowWatched).daemon, of(rowUnwatched).daemon).cpu, limit: 1.04, orEqual: true},
		{what: "100,000 assignments: daemon CPU, of none", unit: "x", found: ratios(of(rowAssigned).daemon, of(rowUnassigned).daemon).cpu, limit: 1.02, orEqual: true},
		{what: "100,000 assignments, five changes a second: p99, of no change", unit: "x", found: ratios(of(rowReassigned).daemon, of(rowAssigned).daemon).p99, limit: 1.05, orEqual: true},
		{what: "100,000 assignments, five changes a second: p99, of no assignments", unit: "x", found: ratios(of(rowReassigned).daemon, of(rowUnassigned).daemon).p99, limit: 1.05, orEqual: true},
		{what: "a million keys: daemon CPU, of 10,000 keys", unit: "x", found: ratios(many.daemon, mem.daemon).cpu, limit: 1.25, orEqual: true},
		{what: "a million keys: bytes of live heap a key", found: perKey, limit: 250},
		{what: "leases, one key: decisions a second", unit: "million", found: medians(leased.daemon).rate / million, limit: 3, isLeast: true},
		{what: "leases, one key: daemon CPU, of that without", unit: "x", found: ratios(leased.daemon, of(rowUnleasedHot).daemon).cpu, limit: 0.01, orEqual: true},
		{what: "leases, one key: Redis commands per 1,000 decisions", found: medians(leased.daemon).commands, limit: 1},
		{what: "leases, a key over its limit: decisions a second", unit: "million", found: medians(over.daemon).rate / million, limit: 3, isLeast: true},
		{what: "leases, a key over its limit: Redis commands per 1,000 decisions", found: medians(over.daemon).commands, limit: 1},
		{what: "leases, 10,000 rare keys: daemon CPU, of that without", unit: "x", found: ratios(of(rowLeaseMany).daemon, of(rowUnleasedMany).daemon).cpu, limit: 1.03, orEqual: true},
		{what: "leases, 10 requests for a key in each: requests to the daemon, of those without", unit: "x", found: ratios(of(rowLeasePaced).daemon, of(rowUnleasedPaced).daemon).asks, limit: 0.2, orEqual: true},
	}
	for _, t := range targets {
		if !math.IsNaN(t.found) {
			return targets
		}
	}
	return nil
}

// slower is the ratio from which a latency counts as slower: two equal builds differ by a
// few percent from run to run.
const slower = 1.05

func targetsTable(targets []target) *table {
	t := &table{texts: 4, columns: []column{{"", "target"}, {"", "allowed"}, {"", "found"}, {"", "verdict"}}}
	for _, one := range targets {
		sign, verdict := "<", "not met"
		switch {
		case one.isLeast:
			sign = ">="
		case one.orEqual:
			sign = "<="
		}
		switch {
		case math.IsNaN(one.found):
			verdict = "not measured"
		case one.met():
			verdict = "met"
		}
		t.add(one.what, strings.TrimSpace(fmt.Sprintf("%s %g %s", sign, one.limit, one.unit)), number(one.found, 2), verdict)
	}
	return t
}
