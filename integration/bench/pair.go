package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// build is a binary of the daemon that is measured beside the one that this
// program builds.
type build struct{ name, path string }

// builds is the flag -pair, which may be given several times.
type builds []build

func (b *builds) String() string { return "" }

// Set reads NAME=PATH.
func (b *builds) Set(text string) error {
	name, path, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("found %q; allowed: NAME=PATH", text)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return fmt.Errorf("found %q; allowed: NAME=PATH, where PATH is a binary of the daemon", text)
	}
	*b = append(*b, build{name: name, path: path})
	return nil
}

// knows reports whether a binary of the daemon, which may be an old one, has a
// flag.
func knows(ctx context.Context, path, flag string) bool {
	help, _ := exec.CommandContext(ctx, path, "serve", "--help").CombinedOutput()
	return bytes.Contains(help, []byte(flag+" "))
}

// pairing is what a row's servers did over all starts: the daemon, each other build, and
// then the tuned bare server.
type pairing struct {
	row row
	// slices are each server's, ratios the daemon's to each: one number for each start,
	// since two processes of one binary differ by more than two slices of one process.
	slices [][]measures
	ratios [][]measures
}

// pair measures the daemon and other builds of it in turns, on new processes after each
// start, and prints how the daemon compares to each.
func pair(ctx context.Context, o options, groups []group, stdout io.Writer, progress func(string, ...any)) error {
	var all []*pairing
	for _, r := range slices.Concat(groups...) {
		all = append(all, &pairing{
			row:    r,
			slices: make([][]measures, len(o.paired)+2),
			ratios: make([][]measures, len(o.paired)+2),
		})
	}
	var noise noise
	for start := range o.starts {
		progress("start %d of %d", start+1, o.starts)
		l, err := openLab(ctx, nil, progress)
		if err != nil {
			return err
		}
		measured := noise.listen(l)
		others := make(map[*server][]*server)
		for _, p := range all {
			if others[p.row.server] == nil {
				others[p.row.server] = copies(p.row.server, o.paired)
			}
			if err = p.measure(ctx, l, others[p.row.server], o.plan); err != nil {
				break
			}
		}
		measured()
		l.close()
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%s\n%d starts, %d slices of %v after each; %v\n\n", machine(ctx), o.starts, o.plan.rounds, o.plan.slice, noise)
	pairTable(all, o.paired).print(stdout, o.markdown)
	return nil
}

// copies returns a copy of s for each build, with its binary.
func copies(s *server, of builds) (all []*server) {
	for _, b := range of {
		c := *s
		c.name, c.binary = s.name+", "+b.name, b.path
		all = append(all, &c)
	}
	return all
}

func (p *pairing) measure(ctx context.Context, l *lab, others []*server, plan plan) error {
	l.progress("%s: %s", p.row.name, p.row.says)
	var subjects []*subject
	defer func() { closeAll(subjects) }()
	for _, s := range append([]*server{p.row.server}, others...) {
		r := p.row
		r.server = s
		one, _, err := l.subject(ctx, r)
		if err != nil {
			return err
		}
		subjects = append(subjects, one)
	}
	tuned, err := newSubject(nameTuned, l.tunedAt, l.bareTuned.pid(), nil, p.row.atBare())
	if err != nil {
		return err
	}
	subjects = append(subjects, tuned)
	if _, err := takeTurns(ctx, subjects, plan); err != nil {
		return err
	}
	for i, s := range subjects {
		for _, problem := range s.problems() {
			if problem.wrong {
				return fmt.Errorf("wrong answers of %s: %s", s.row.server.name, problem.text)
			}
		}
		p.slices[i] = append(p.slices[i], medians(s.slices))
		p.ratios[i] = append(p.ratios[i], ratios(subjects[0].slices, s.slices))
	}
	return nil
}

func pairTable(all []*pairing, of builds) *table {
	t := &table{texts: 2, columns: []column{
		{"", "row"}, {"", "server"}, {"", "req/s"}, {"", "p50 us"},
		{"CPU us/request", "server"}, {"CPU us/request", "Redis"}, {"Redis per 1,000", "scripts"},
		{"the daemon is to it", "CPU"}, {"the daemon is to it", "95 % of"}, {"the daemon is to it", "Redis"}, {"the daemon is to it", "p50"},
	}}
	for _, p := range all {
		for i, slices := range p.slices {
			m, r := medians(slices), medians(p.ratios[i])
			line := []string{p.row.name, nameDaemon, number(m.rate, 0), latency(m.p50), number(m.cpu, 2), number(m.redis, 2), number(m.scripts, 1)}
			if i > 0 {
				line[1] = nameTuned
				if i <= len(of) {
					line[1] = of[i-1].name
				}
				low, high := interval(p.ratios[i])
				line = append(line, number(r.cpu, 3), fmt.Sprintf("%.3f-%.3f", low, high), number(r.redis, 3), number(r.p50, 3))
			}
			t.add(line...)
		}
	}
	return t
}

// interval returns the 95 % confidence interval of the median of the starts' CPU ratios,
// by the percentile bootstrap (Efron, 1979).
func interval(of []measures) (low, high float64) {
	const draws = 4000
	random := rand.New(rand.NewPCG(1, 2))
	found := make([]float64, draws)
	drawn := make([]float64, len(of))
	for i := range found {
		for j := range drawn {
			drawn[j] = of[random.IntN(len(of))].cpu
		}
		found[i] = median(drawn)
	}
	slices.Sort(found)
	return found[draws*25/1000], found[draws*975/1000]
}
