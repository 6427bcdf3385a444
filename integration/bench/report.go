package main

import (
	"context"
	"fmt"
	"io"
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
