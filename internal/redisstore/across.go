package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// takeAcross takes a group whose keys are on several hash tags of a cluster,
// where no command is atomic over all. It checks every part first, charging
// nothing, and takes only if all allow. So a denied request costs nothing, unless
// it lost a race between check and take; then what the other parts took is given
// back.
func (s *Store) takeAcross(r *request, parts []*part) error {
	// A check that gets no answer must leave time for the takes.
	early := r.start.Add(r.deadline.Sub(r.start) / 2)
	checks := s.choose(parts, script.Check, func(*bucket.Hit, *bucket.Decision) bool { return true })
	defer s.recycle(checks)
	err := s.runAll(r.ctx, r, r.start, early, checks)
	scatter(checks, r.whole.Decisions)
	if err != nil {
		return err
	}
	if !bucket.GroupAllowed(r.whole.Hits, r.whole.Decisions) {
		return s.chargeDenied(r, checks)
	}
	// Refunds cannot deny, so they wait until nothing else can.
	takes := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return h.Cost >= 0 })
	defer s.recycle(takes)
	putQuotasAside(takes)
	err = s.runAll(r.ctx, r, time.Now(), r.deadline, takes)
	if err != nil || !r.allowed(takes) {
		if err == nil {
			s.metrics.races.Inc()
		}
		s.giveBackGranted(r, takes)
		scatterDenied(takes, r.whole.Decisions)
		return err
	}
	scatter(takes, r.whole.Decisions)
	refunds := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return h.Cost < 0 })
	defer s.recycle(refunds)
	passOnOutcomes(takes, refunds)
	if err := s.runAll(r.ctx, r, time.Now(), r.deadline, refunds); err != nil {
		s.giveBackGranted(r, takes)
		return err
	}
	scatter(refunds, r.whole.Decisions)
	return nil
}

// passOnOutcomes has parts that Redis is to decide begin with the outcomes of
// earlier parts of the same tags.
func passOnOutcomes(from, to []*part) {
	for _, p := range to {
		for _, before := range from {
			if p.tag == before.tag && p.outcome.isPending() {
				p.outcome = before.outcome.passedOn()
			}
		}
	}
}

// chargeDenied charges those hits of a denied group that are charged anyway.
func (s *Store) chargeDenied(r *request, checks []*part) error {
	charged := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return h.Limit.ChargedAnyway(h.Cost) })
	defer s.recycle(charged)
	err := s.runAll(r.ctx, r, time.Now(), r.deadline, charged)
	scatterCharged(charged, r.whole.Decisions)
	return err
}

// giveBackGranted gives back what the allowed parts took, to Redis or to the
// fallback; postpaid charges stay.
func (s *Store) giveBackGranted(r *request, takes []*part) {
	var granted []*part
	for _, p := range takes {
		if p.outcome.isDecided() && bucket.GroupAllowed(p.Hits, p.Decisions) {
			granted = append(granted, p)
		}
	}
	back := s.choose(granted, script.GiveBack, func(h *bucket.Hit, d *bucket.Decision) bool {
		return !h.Limit.ChargedAnyway(h.Cost) && bucket.Charged(h, d, true)
	})
	for _, p := range back {
		if !p.outcome.isPending() {
			p.outcome = outcome{unasked, errTakenElsewhere}
		}
	}
	defer s.recycle(back)
	// Best effort: what is not given back expires.
	now := time.Now()
	_ = s.runAll(context.WithoutCancel(r.ctx), r, now, now.Add(s.timeout), back)
	s.denials.changed(r.whole.Hits)
}

// scatterCharged is scatter for the hits of a denied group that were charged
// anyway. By then a limit that denied may have room again; the group stays denied,
// for none of its other hits was taken.
func scatterCharged(charged []*part, all []bucket.Decision) {
	for _, p := range charged {
		for i, j := range p.of {
			retry := all[j].RetryAfter
			all[j] = p.Decisions[i]
			if all[j].Allowed() {
				all[j].RetryAfter = retry
			}
		}
	}
}

// scatterDenied is scatter for the parts of a request that lost a race. What the
// allowed parts took was given back, so their hits keep the decisions of the
// check.
func scatterDenied(takes []*part, all []bucket.Decision) {
	for _, p := range takes {
		denied := !bucket.GroupAllowed(p.Hits, p.Decisions)
		for i, j := range p.of {
			if denied || !p.Decisions[i].Allowed() || p.Hits[i].Limit.ChargedAnyway(p.Hits[i].Cost) {
				all[j] = p.Decisions[i]
			}
		}
	}
}

// putQuotasAside has hits of quotas decide nothing in their parts: the check has
// shown that some quota allows, and no part knows the hits of the others.
func putQuotasAside(parts []*part) {
	for _, p := range parts {
		for i := range p.Hits {
			if p.Hits[i].Role > bucket.Enforced {
				p.Hits[i].Role = bucket.Aside
			}
		}
	}
}

// restoreQuotas undoes putQuotasAside for hits that fail with their store: they
// fail the request, whatever their check said.
func (s *Store) restoreQuotas(r *request, p *part) {
	for i, j := range p.of {
		if h := &r.whole.Hits[j]; h.Role > bucket.Enforced && s.fallback.Fails(h) {
			p.Hits[i].Role = h.Role
		}
	}
}

// allowed reports whether the request is allowed now that these parts of it are
// decided.
func (r *request) allowed(parts []*part) bool {
	for _, p := range parts {
		if !bucket.GroupAllowed(p.Hits, p.Decisions) {
			return false
		}
	}
	if !r.hasQuotas() {
		return true
	}
	decisions := slices.Clone(r.whole.Decisions)
	scatter(parts, decisions)
	return bucket.GroupAllowed(r.whole.Hits, decisions)
}

// choose returns parts with the wanted hits of parts, their decisions so far, and
// the outcomes that these pass on.
func (s *Store) choose(parts []*part, m script.Mode, wanted func(*bucket.Hit, *bucket.Decision) bool) []*part {
	var chosen []*part
	for _, p := range parts {
		c := s.part(m, p.tag)
		c.outcome = p.outcome.passedOn()
		for i, h := range p.Hits {
			if wanted(&p.Hits[i], &p.Decisions[i]) {
				c.add(h, p.of[i], p.Decisions[i])
			}
		}
		if len(c.Hits) > 0 {
			chosen = append(chosen, c)
		} else {
			s.recycle([]*part{c})
		}
	}
	return chosen
}

// scatter writes the decisions of parts to all, at the indexes that their hits
// have in the request.
func scatter(parts []*part, all []bucket.Decision) {
	for _, p := range parts {
		for i, j := range p.of {
			all[j] = p.Decisions[i]
		}
	}
}
