package redisstore

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

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
func (rs *requests) split(r *request, m script.Mode) []*request {
	var pieces []*request
	for i := range r.Hits {
		tag := r.Tag
		if r.isSpread {
			tag = rs.tags.Of(r.Hits[i].Place)
		}
		at := slices.IndexFunc(pieces, func(p *request) bool { return p.Tag == tag })
		if at < 0 {
			at = len(pieces)
			pieces = append(pieces, rs.piece(r, m, tag))
		}
		pieces[at].copyHit(&r.Group, i, r.Decisions[i])
		pieces[at].of = append(pieces[at].of, i)
	}
	return pieces
}

// piece returns an empty piece of a request for the hits of a tag.
func (rs *requests) piece(whole *request, m script.Mode, tag int) *request {
	p := rs.get()
	p.Mode, p.Tag, p.whole = m, tag, whole
	return p
}

// choose returns new pieces with the wanted hits of pieces and their decisions so far.
// Redis is not asked again about what it did not decide.
func (rs *requests) choose(pieces []*request, m script.Mode, wanted func(*bucket.Hit, *bucket.Decision) bool) []*request {
	var chosen []*request
	for _, p := range pieces {
		c := rs.piece(p.whole, m, p.Tag)
		c.skipped = p.Cause
		for i := range p.Hits {
			if wanted(&p.Hits[i], &p.Decisions[i]) {
				c.copyHit(&p.Group, i, p.Decisions[i])
				c.of = append(c.of, p.of[i])
			}
		}
		if len(c.Hits) > 0 {
			chosen = append(chosen, c)
		} else {
			rs.recycle(c)
		}
	}
	return chosen
}

func (rs *requests) recycleAll(pieces []*request) {
	for _, p := range pieces {
		rs.recycle(p)
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
