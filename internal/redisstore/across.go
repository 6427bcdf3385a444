package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// takeAcross takes a request whose keys are on several hash tags of a cluster, where no
// command is atomic over all. It checks every piece first, charging nothing, and takes
// only if all allow. So a denied request costs nothing, unless it loses a race between
// check and take; then what the other pieces took is given back.
func (s *Store) takeAcross(r *request) error {
	// A check that gets no answer must leave time for the takes.
	early := r.start.Add(r.deadline.Sub(r.start) / 2)
	checks := s.split(r, script.Check)
	defer s.recycleAll(checks)
	err := s.ask(r.ctx, r.start, early, checks)
	scatter(checks, r.Decisions)
	if err != nil {
		return err
	}
	if !bucket.GroupAllowed(r.Hits, r.Decisions) {
		return s.chargeDenied(r, checks)
	}
	// Refunds cannot deny, so they wait until nothing else can. Hits that are charged
	// whatever the group gets do not wait.
	takes := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return !waits(h) })
	defer s.recycleAll(takes)
	putQuotasAside(takes)
	err = s.ask(r.ctx, time.Now(), r.deadline, takes)
	if err != nil || !r.allowed(takes) {
		if err == nil {
			s.metrics.races.Inc()
		}
		s.giveBackGranted(r, takes)
		scatterDenied(takes, r.Decisions)
		return err
	}
	scatter(takes, r.Decisions)
	refunds := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return waits(h) })
	defer s.recycleAll(refunds)
	passOnDeciders(takes, refunds)
	if err := s.ask(r.ctx, time.Now(), r.deadline, refunds); err != nil {
		s.giveBackGranted(r, takes)
		return err
	}
	scatter(refunds, r.Decisions)
	return nil
}

// waits reports whether a hit is taken only after all others.
func waits(h *bucket.Hit) bool { return h.Cost < 0 && !h.Limit.ChargedAnyway(h.Cost) }

// passOnDeciders makes requests that Redis is to decide begin with what earlier ones of
// the same tags pass on.
func passOnDeciders(from, to []*request) {
	for _, r := range to {
		for _, before := range from {
			if r.tag == before.tag && r.by.isPending() {
				r.by = before.by.passedOn()
			}
		}
	}
}

// chargeDenied charges those hits of a denied group that are charged anyway.
func (s *Store) chargeDenied(r *request, checks []*request) error {
	charged := s.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return h.Limit.ChargedAnyway(h.Cost) })
	defer s.recycleAll(charged)
	err := s.ask(r.ctx, time.Now(), r.deadline, charged)
	scatterCharged(charged, r.Decisions)
	return err
}

// giveBackGranted gives back what the allowed takes took, to Redis or to the
// fallback; postpaid charges stay.
func (s *Store) giveBackGranted(r *request, takes []*request) {
	var granted []*request
	for _, t := range takes {
		if t.by.isDecided() && bucket.GroupAllowed(t.Hits, t.Decisions) {
			granted = append(granted, t)
		}
	}
	mode := script.GiveBack
	if r.Named != nil {
		mode = script.Settle
	}
	back := s.choose(granted, mode, func(h *bucket.Hit, d *bucket.Decision) bool {
		return !h.Limit.ChargedAnyway(h.Cost) && bucket.Charged(h, d, true)
	})
	for _, b := range back {
		if mode == script.Settle {
			b.undoTake()
		}
		if !b.by.isPending() {
			b.by = decidedBy{unasked, errTakenElsewhere}
		}
	}
	defer s.recycleAll(back)
	// Best effort: what is not given back expires.
	now := time.Now()
	_ = s.ask(context.WithoutCancel(r.ctx), now, now.Add(s.timeout), back)
	s.denials.forgetHashes(r.Hashes)
}

// scatterCharged is scatter for the hits of a denied group that were charged anyway. By
// then a limit that denied may have room again; the group stays denied, since none of
// its other hits was taken.
func scatterCharged(charged []*request, all []bucket.Decision) {
	for _, r := range charged {
		for i, j := range r.of {
			retry := all[j].RetryAfter
			all[j] = r.Decisions[i]
			if all[j].Allowed() {
				all[j].RetryAfter = retry
			}
		}
	}
}

// scatterDenied is scatter for the takes of a request that lost a race. What the
// allowed takes charged was given back, so their hits keep the decisions of the check.
func scatterDenied(takes []*request, all []bucket.Decision) {
	for _, t := range takes {
		denied := !bucket.GroupAllowed(t.Hits, t.Decisions)
		for i, j := range t.of {
			if denied || !t.Decisions[i].Allowed() || t.Hits[i].Limit.ChargedAnyway(t.Hits[i].Cost) {
				all[j] = t.Decisions[i]
			}
		}
	}
}

// putQuotasAside makes hits of quotas decide nothing in their pieces: the check has
// shown that some quota allows, and no piece knows the hits of the others.
func putQuotasAside(pieces []*request) {
	for _, p := range pieces {
		for i := range p.Hits {
			if p.Hits[i].Role > bucket.Enforced {
				p.Hits[i].Role = bucket.Aside
			}
		}
	}
}

// restoreQuotas undoes putQuotasAside for hits that fail with their store: they
// fail the request, whatever their check said.
func (s *Store) restoreQuotas(piece *request) {
	for i, j := range piece.of {
		if h := &piece.whole.Hits[j]; h.Role > bucket.Enforced && s.fallback.Fails(h) {
			piece.Hits[i].Role = h.Role
		}
	}
}

// allowed reports whether the request is allowed now that these of its pieces are
// decided.
func (r *request) allowed(pieces []*request) bool {
	for _, p := range pieces {
		if !bucket.GroupAllowed(p.Hits, p.Decisions) {
			return false
		}
	}
	if !r.hasQuotas() {
		return true
	}
	decisions := slices.Clone(r.Decisions)
	scatter(pieces, decisions)
	return bucket.GroupAllowed(r.Hits, decisions)
}

// hasQuotas reports whether some hits belong to quotas.
func (r *request) hasQuotas() bool {
	return slices.ContainsFunc(r.Hits, func(h bucket.Hit) bool { return h.Role > bucket.Enforced })
}

// split returns the pieces of a request, one per tag; only one unless it is spread.
func (s *Store) split(r *request, m script.Mode) []*request {
	var pieces []*request
	for i := range r.Hits {
		tag := r.tag
		if r.isSpread {
			tag = s.tags.Of(r.Hits[i].Place)
		}
		at := slices.IndexFunc(pieces, func(p *request) bool { return p.tag == tag })
		if at < 0 {
			at = len(pieces)
			pieces = append(pieces, s.piece(r, m, tag))
		}
		pieces[at].copyHit(r, i, i, r.Decisions[i])
	}
	return pieces
}

// choose returns new pieces with the wanted hits of pieces and their decisions so far.
// Each begins with what its piece passes on about who decided.
func (s *Store) choose(pieces []*request, m script.Mode, wanted func(*bucket.Hit, *bucket.Decision) bool) []*request {
	var chosen []*request
	for _, p := range pieces {
		c := s.piece(p.whole, m, p.tag)
		c.by = p.by.passedOn()
		for i := range p.Hits {
			if wanted(&p.Hits[i], &p.Decisions[i]) {
				c.copyHit(p, i, p.of[i], p.Decisions[i])
			}
		}
		if len(c.Hits) > 0 {
			chosen = append(chosen, c)
		} else {
			s.recycle(c)
		}
	}
	return chosen
}

func (s *Store) recycleAll(requests []*request) {
	for _, r := range requests {
		s.recycle(r)
	}
}

// scatter writes the decisions of pieces to all, at the indexes that their hits
// have in the request.
func scatter(pieces []*request, all []bucket.Decision) {
	for _, p := range pieces {
		for i, j := range p.of {
			all[j] = p.Decisions[i]
		}
	}
}
