package main

import (
	"context"
	"time"
)

// plan is how long everything takes.
type plan struct {
	rounds  int
	slice   time.Duration
	warm    time.Duration // before each slice
	connect time.Duration // the first slice of all, which is not counted
}

// result is a row's line.
type result struct {
	row         row
	unavailable string // why it was not measured
	// The slices of each server, compared in the order of the comparisons.
	daemon, bare, tuned []measures
	compared            [][]measures
	rate                float64 // of an open loop
	filled              filled
	problems            []problem
}

// measure lets all servers of a group take turns and returns its rows' lines.
func (l *lab) measure(ctx context.Context, g group, p plan) ([]result, error) {
	var results []result
	var subjects, ofRows []*subject
	defer func() {
		for _, s := range subjects {
			s.close()
		}
	}()
	add := func(s *subject, err error) error {
		if err == nil {
			subjects = append(subjects, s)
		}
		return err
	}
	var rows []int // of the results that are measured
	for _, r := range g {
		results = append(results, result{row: r})
		if !l.has(r.server) {
			results[len(results)-1].unavailable = "this daemon has no " + r.server.needs
			continue
		}
		d, err := l.daemon(ctx, r.server)
		if err != nil {
			return nil, err
		}
		results[len(results)-1].filled = d.filled
		if err := add(newSubject(nameDaemon, d.grpc, d.process.pid(), d.redis, r)); err != nil {
			return nil, err
		}
		rows = append(rows, len(results)-1)
	}
	if len(rows) == 0 {
		return results, nil
	}
	ofRows = subjects
	first := results[rows[0]].row
	if err := add(newSubject(nameBare, l.bareAt, l.bare.pid(), nil, first)); err != nil {
		return nil, err
	}
	if err := add(newSubject(nameTuned, l.tunedAt, l.bareTuned.pid(), nil, first)); err != nil {
		return nil, err
	}
	for _, c := range l.compared {
		if err := add(newSubject(c.name, c.address, c.pid, nil, first)); err != nil {
			return nil, err
		}
	}
	rate, err := takeTurns(ctx, subjects, p, first.halfPeak)
	if err != nil {
		return nil, err
	}
	others := subjects[len(ofRows):]
	for i, s := range ofRows {
		r := &results[rows[i]]
		r.rate, r.daemon = rate, s.slices
		r.bare, r.tuned = others[0].slices, others[1].slices
		for _, c := range others[2:] {
			r.compared = append(r.compared, c.slices)
		}
		r.problems = s.problems()
		for _, o := range others {
			r.problems = append(r.problems, o.problems()...)
		}
	}
	return results, nil
}

// takeTurns measures all subjects in so many rounds, each time in another
// order, so that what else happens on the machine hits all alike. It returns
// the rate of the open loop, where it is one: half of what the first reaches.
func takeTurns(ctx context.Context, subjects []*subject, p plan, halfPeak bool) (rate float64, err error) {
	for _, s := range subjects {
		if _, err := s.slice(ctx, 0, p.connect, 0); err != nil {
			return 0, err
		}
	}
	if halfPeak {
		if rate, err = subjects[0].peak(ctx, p); err != nil {
			return 0, err
		}
		rate /= 2
	}
	for round := range p.rounds {
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
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
