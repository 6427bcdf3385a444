package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// takeAcross decides a group whose keys are on several hash tags of a cluster,
// where no call is atomic over all. It checks every part first, reading only,
// and takes only if all allow; so a request that is denied costs nothing
// unless it lost a race in between. Then what the other parts granted is given
// back.
func (s *Store) takeAcross(r *request, parts []*part) error {
	// An answer that does not come must leave time for the takes of the others.
	early := r.start.Add(r.deadline.Sub(r.start) / 2)
	checks := s.choose(parts, check, func(bucket.Hit) bool { return true })
	defer func() { s.recycle(checks) }()
	err := s.runAll(r.ctx, early, checks)
	scatter(checks, r.decisions)
	if err != nil || !bucket.Allowed(r.decisions) {
		s.countDegraded(r.ctx, checks)
	}
	if err != nil {
		return err
	}
	if !bucket.Allowed(r.decisions) {
		return s.chargeDenied(r, checks)
	}
	// Refunds cannot deny, so they wait until nothing else can.
	takes := s.choose(checks, take, func(h bucket.Hit) bool { return h.Cost >= 0 })
	defer func() { s.recycle(takes) }()
	err = s.runAll(r.ctx, r.deadline, takes)
	s.countDegraded(r.ctx, takes)
	if err != nil || !allowed(takes) {
		if err == nil {
			s.metrics.races.Inc()
		}
		s.giveBackGranted(r, takes)
		scatterDenied(takes, r.decisions)
		return err
	}
	scatter(takes, r.decisions)
	refunds := s.choose(checks, take, func(h bucket.Hit) bool { return h.Cost < 0 })
	defer func() { s.recycle(refunds) }()
	err = s.runAll(r.ctx, r.deadline, refunds)
	scatter(refunds, r.decisions)
	return err
}

// chargeDenied charges what a denied group does all the same.
func (s *Store) chargeDenied(r *request, checks []*part) error {
	charged := s.choose(checks, take, func(h bucket.Hit) bool { return h.Limit.ChargedAnyway(h.Cost) })
	defer func() { s.recycle(charged) }()
	err := s.runAll(r.ctx, r.deadline, charged)
	scatterCharged(charged, r.decisions)
	return err
}

// giveBackGranted returns what the parts that were allowed took, from Redis or
// from the fallback, postpaid charges aside.
func (s *Store) giveBackGranted(r *request, takes []*part) {
	var granted []*part
	for _, p := range takes {
		if p.failed == nil && bucket.Allowed(p.decisions) {
			granted = append(granted, p)
		}
	}
	back := s.choose(granted, giveBack, func(h bucket.Hit) bool { return !h.Limit.ChargedAnyway(h.Cost) })
	for _, p := range back {
		if p.cause != nil {
			p.cause = errTakenElsewhere
		}
	}
	defer func() { s.recycle(back) }()
	// Best effort: what is not returned expires.
	_ = s.runAll(context.WithoutCancel(r.ctx), time.Now().Add(s.timeout), back)
	s.denials.returned(r.hits)
}

// scatterCharged is scatter for what a denied group charges all the same. By
// the time of the charge a limit that denied may have room again; the group
// stays denied, for what else it asked was not taken.
func scatterCharged(charged []*part, all []bucket.Decision) {
	for _, p := range charged {
		for i, j := range p.of {
			denied := all[j].RetryAfter
			all[j] = p.decisions[i]
			if all[j].Allowed() {
				all[j].RetryAfter = denied
			}
		}
	}
}

// scatterDenied is scatter for parts of which one was denied: what the others
// granted was given back, so the check before it says what is true for them.
func scatterDenied(takes []*part, all []bucket.Decision) {
	for _, p := range takes {
		denied := !bucket.Allowed(p.decisions)
		for i, j := range p.of {
			if denied || p.hits[i].Limit.ChargedAnyway(p.hits[i].Cost) {
				all[j] = p.decisions[i]
			}
		}
	}
}

// allowed reports whether every part was.
func allowed(parts []*part) bool {
	for _, p := range parts {
		if !bucket.Allowed(p.decisions) {
			return false
		}
	}
	return true
}

// choose returns parts of the hits that are wanted, with their decisions so far.
func (s *Store) choose(parts []*part, m mode, wanted func(bucket.Hit) bool) []*part {
	var chosen []*part
	for _, p := range parts {
		c := s.part(m, p.tag)
		c.cause = p.cause
		for i, h := range p.hits {
			if wanted(h) {
				c.add("", h, p.of[i], p.decisions[i])
			}
		}
		if len(c.hits) > 0 {
			chosen = append(chosen, c)
		} else {
			s.recycle([]*part{c})
		}
	}
	return chosen
}

// scatter writes the decisions of parts to where their hits stand in the whole.
func scatter(parts []*part, all []bucket.Decision) {
	for _, p := range parts {
		for i, j := range p.of {
			all[j] = p.decisions[i]
		}
	}
}
