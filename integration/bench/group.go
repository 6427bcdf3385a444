package main

import (
	"context"
	"math/rand/v2"
	"slices"
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
	row row
	// The slices of each server, compared in the order of the comparisons.
	daemon, bare, tuned []measures
	compared            [][]measures
	rates               []float64 // of an open loop, after each start
	filled              filled
	problems            []problem
}

// join adds what the same row did when all was started again.
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
		d, err := l.daemon(ctx, r.server)
		if err != nil {
			return nil, err
		}
		results[i].row, results[i].filled = r, d.filled
		s, err := newSubject(nameDaemon, d.grpc, d.process.pid(), d.redis, r)
		if err != nil {
			return nil, err
		}
		daemons = append(daemons, s)
	}
	others, err := l.others(daemons[0].row)
	if err != nil {
		return nil, err
	}
	defer closeAll(others)
	rate, err := takeTurns(ctx, slices.Concat(daemons, others), p, daemons[0].row.halfPeak)
	if err != nil {
		return nil, err
	}
	for i, s := range daemons {
		if rate > 0 {
			results[i].rates = []float64{rate}
		}
		results[i].take(s, others)
	}
	return results, nil
}

// others returns what a row's daemon is compared with: the bare servers and
// then the comparisons.
func (l *lab) others(r row) (all []*subject, err error) {
	servers := append([]comparison{
		{nameBare, l.bareAt, l.bare.pid()},
		{nameTuned, l.tunedAt, l.bareTuned.pid()},
	}, l.compared...)
	// They know Envoy's RPC alone: as many callers as the row has in flight.
	r.load.callers, r.load.door, r.load.together = r.load.inFlight(), envoyDoor, 0
	for _, c := range servers {
		s, err := newSubject(c.name, c.address, c.pid, nil, r)
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

// take takes over what was measured.
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

// takeTurns measures all subjects in so many rounds, each time in an order of
// chance, so that what else happens on the machine, and who was there just
// before, hits all alike. It returns the rate of the open loop, where it is
// one: half of what the first reaches.
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
