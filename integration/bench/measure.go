package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// measures are the numbers of a slice, or the medians of several; unknown ones are NaN.
type measures struct {
	rate            float64 // answers a second
	p50, p99, p999  float64 // us
	cpu, redis, own float64 // us a request: of the server, its Redis, the generator
	// scripts and commands are per 1,000 requests.
	scripts, commands float64
	// asks are the requests that the daemon counted per 1,000 of the callers'.
	asks float64
}

func (s *subject) measure(before, after reading, store, storeAfter storeReading) measures {
	n := float64(after.answers - before.answers)
	m := measures{
		rate: n / after.at.Sub(before.at).Seconds(),
		own:  micros(after.own-before.own) / n,
		cpu:  math.NaN(), redis: math.NaN(), scripts: math.NaN(), commands: math.NaN(), asks: math.NaN(),
	}
	if s.pid != 0 {
		m.cpu = micros(after.cpu-before.cpu) / n
	}
	if s.redis != nil {
		n := float64(storeAfter.answers - store.answers)
		m.redis = micros(storeAfter.cpu-store.cpu) / n
		m.scripts = float64(storeAfter.scripts-store.scripts) / n * 1000
		m.commands = float64(storeAfter.commands-store.commands) / n * 1000
	}
	if s.daemon != nil {
		m.asks = float64(after.asks-before.asks) / n * 1000
	}
	var all histogram
	for _, c := range s.callers {
		all.add(&c.latency)
	}
	m.p50, m.p99, m.p999 = all.quantile(0.5), all.quantile(0.99), all.quantile(0.999)
	return m
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// each calls do with every number of a slice.
func (m *measures) each(do func(number *float64)) {
	for _, number := range []*float64{&m.rate, &m.p50, &m.p99, &m.p999, &m.cpu, &m.redis, &m.own, &m.scripts, &m.commands, &m.asks} {
		do(number)
	}
}

// medians returns the median of each number over all slices; without slices all are NaN.
func medians(all []measures) (m measures) {
	values := make([][]float64, 0, 10)
	m.each(func(*float64) { values = append(values, nil) })
	for _, one := range all {
		i := 0
		one.each(func(number *float64) { values[i] = append(values[i], *number); i++ })
	}
	i := 0
	m.each(func(number *float64) { *number = median(values[i]); i++ })
	return m
}

// ratios returns the medians of the ratios of two servers' slices, round by round: what
// slows the machine for a while slows both.
func ratios(of, to []measures) measures {
	all := make([]measures, min(len(of), len(to)))
	for i := range all {
		all[i] = of[i]
		var divisors []float64
		to[i].each(func(number *float64) { divisors = append(divisors, *number) })
		n := 0
		all[i].each(func(number *float64) { *number /= divisors[n]; n++ })
	}
	return medians(all)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values) // NaN before all numbers
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

// plan is how long everything takes.
type plan struct {
	rounds  int
	slice   time.Duration
	warm    time.Duration // before each slice
	connect time.Duration // the first slice of all, which is not counted
	rate    float64       // of an open loop, or 0
}

// result is a row's line.
type result struct {
	row row
	// The slices of each server, compared in the order of the comparisons.
	daemon, bare, tuned []measures
	compared            [][]measures
	rates               []float64 // of an open loop, after each start
	filled              filled
	problems            []problem
}

// join adds what the same row did after everything was restarted.
func (r *result) join(again result) {
	r.daemon = append(r.daemon, again.daemon...)
	r.bare = append(r.bare, again.bare...)
	r.tuned = append(r.tuned, again.tuned...)
	for i := range r.compared {
		r.compared[i] = append(r.compared[i], again.compared[i]...)
	}
	r.rates, r.filled = append(r.rates, again.rates...), again.filled
	r.problems = append(r.problems, again.problems...)
}

// measure lets all servers of a group take turns and returns its rows' lines.
func (l *lab) measure(ctx context.Context, g group, p plan) ([]result, error) {
	results := make([]result, len(g))
	var daemons []*subject
	defer func() { closeAll(daemons) }()
	for i, r := range g {
		s, d, err := l.subject(ctx, r)
		if err != nil {
			return nil, err
		}
		results[i].row, results[i].filled = r, d.filled
		daemons = append(daemons, s)
	}
	others, err := l.others(daemons[0].row)
	if err != nil {
		return nil, err
	}
	defer closeAll(others)
	rate, err := takeTurns(ctx, slices.Concat(daemons, others), p)
	if err != nil {
		return nil, err
	}
	for i, s := range daemons {
		if l.profiles != "" {
			if err := s.profile(ctx, l.daemons[s.row.server], filepath.Join(l.profiles, s.row.name+".pprof")); err != nil {
				return nil, fmt.Errorf("profile: %w", err)
			}
		}
		if rate > 0 {
			results[i].rates = []float64{rate}
		}
		results[i].take(s, others)
	}
	return results, nil
}

// subject returns the daemon of a row's server under the row's load.
func (l *lab) subject(ctx context.Context, r row) (*subject, *daemon, error) {
	d, err := l.daemon(ctx, r.server)
	if err != nil {
		return nil, nil, err
	}
	var s *subject
	if r.load.door == leaseDoor || r.load.door == unleasedDoor {
		s, err = l.remoteSubject(ctx, d, r)
	} else {
		s, err = newSubject(nameDaemon, d.grpc, d.process.pid(), d.redis, r)
	}
	if err != nil {
		return nil, nil, err
	}
	if r.load.reassigns {
		s.assign = d.assign
	}
	return s, d, nil
}

// others returns what a row's daemon is compared with: the bare servers and
// then the comparisons.
func (l *lab) others(r row) (all []*subject, err error) {
	servers := append([]comparison{
		{name: nameBare, address: l.bareAt, pid: l.bare.pid()},
		{name: nameTuned, address: l.tunedAt, pid: l.bareTuned.pid()},
	}, l.compared...)
	for _, c := range servers {
		s, err := newSubject(c.name, c.address, c.pid, nil, r.atBare())
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func closeAll(subjects []*subject) {
	for _, s := range subjects {
		s.close()
	}
}

// take copies what was measured.
func (r *result) take(daemon *subject, others []*subject) {
	r.daemon, r.bare, r.tuned = daemon.slices, others[0].slices, others[1].slices
	for _, c := range others[2:] {
		r.compared = append(r.compared, c.slices)
	}
	r.problems = daemon.problems()
	for _, o := range others {
		r.problems = append(r.problems, o.problems()...)
	}
}

// takeTurns measures all subjects in each round of the plan, in random order, so that
// whatever else happens on the machine, and which subject ran just before, affects all
// alike. It returns the rate of the open loop, if it is one: the plan's, the row's, or
// half of what the first subject reaches.
func takeTurns(ctx context.Context, subjects []*subject, p plan) (rate float64, err error) {
	row := subjects[0].row
	rate = cmp.Or(p.rate, row.rate)
	if rate > 0 && row.load.together > 0 {
		return 0, fmt.Errorf("found -rate; allowed: rows that ask for one decision at a time, not by %s", row.load.door)
	}
	for _, s := range subjects {
		if _, err := s.slice(ctx, 0, p.connect, 0); err != nil {
			return 0, err
		}
	}
	if row.halfPeak && rate == 0 {
		if rate, err = subjects[0].peak(ctx, p); err != nil {
			return 0, err
		}
		rate /= 2
	}
	for range p.rounds {
		for _, i := range rand.Perm(len(subjects)) {
			s := subjects[i]
			m, err := s.slice(ctx, p.warm, p.slice, rate)
			if err != nil {
				return 0, err
			}
			s.slices = append(s.slices, m)
		}
	}
	return rate, nil
}

// peak returns the answers a second that the callers get in a closed loop.
func (s *subject) peak(ctx context.Context, p plan) (float64, error) {
	var all []measures
	for range p.rounds {
		m, err := s.slice(ctx, p.warm, p.slice, 0)
		if err != nil {
			return 0, err
		}
		all = append(all, m)
	}
	return medians(all).rate, nil
}

// problem describes answers that are not what a row must give.
type problem struct {
	text string
	// wrong is whether the server decided wrongly or answered nothing; otherwise some
	// answers are missing, which happens on a machine that is too busy.
	wrong bool
}

// problems says which answers are not what the row must give. A bare server
// allows everything.
func (s *subject) problems() []problem {
	var ok, over, degraded, malformed int64
	var failure error
	for _, c := range s.callers {
		ok += c.tally.ok.Load()
		over += c.tally.over.Load()
		degraded += c.tally.degraded.Load()
		malformed += c.tally.malformed.Load()
		if err := c.tally.failure.Load(); err != nil {
			failure = *err
		}
	}
	var found []problem
	say := func(wrong bool, format string, args ...any) {
		text := fmt.Sprintf("%s, %s: ", s.row.name, s.name) + fmt.Sprintf(format, args...)
		found = append(found, problem{text, wrong})
	}
	if failed := s.failed(); failed > 0 {
		say(ok+over == 0, "%d of %d requests failed, the last with: %v", failed, failed+ok+over, failure)
	}
	if n := s.dropped.Load(); n > 0 {
		say(false, "%d arrivals found no caller free and were not sent; no latency counts them", n)
	}
	if degraded > 0 {
		say(true, "%d answers are degraded", degraded)
	}
	if malformed > 0 {
		say(true, "%d answers have another number of statuses than asked", malformed)
	}
	limited := s.row.load.keys == hotOver && s.name != nameBare && s.name != nameTuned
	switch {
	case limited && ok > s.allowed():
		say(true, "%d requests passed a limit of %d an hour", ok, overLimit)
	case !limited && over > 0:
		say(true, "%d of %d requests were denied, under their limit", over, ok+over)
	}
	return found
}

// allowed is how many requests for the key over its limit may have passed so far. A
// compared server may count in windows of the clock, and begin a new one.
func (s *subject) allowed() int64 {
	if s.name != nameDaemon {
		return 2 * overLimit
	}
	return overLimit + int64(math.Ceil(time.Since(s.since).Hours()*overLimit))
}
