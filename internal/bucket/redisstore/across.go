package redisstore

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// takeAcross decides a group whose keys are on several hash tags of a cluster,
// where no call is atomic over all. It checks every part first, reading only,
// and takes only if all allow; so a request that is denied costs nothing
// unless it lost a race in between. Then what the other parts granted is given
// back.
func (s *Store) takeAcross(ctx context.Context, parts []*part, all []bucket.Decision) error {
	checks := choose(parts, check, func(bucket.Hit) bool { return true })
	if err := s.runAll(ctx, checks); err != nil {
		return err
	}
	scatter(checks, all)
	if !bucket.Allowed(all) {
		// What a denied group charges all the same.
		charged := choose(parts, take, func(h bucket.Hit) bool { return h.Limit.ChargedAnyway(h.Cost) })
		err := s.runAll(ctx, charged)
		scatterCharged(charged, all)
		return err
	}

	// Refunds cannot deny, so they wait until nothing else can.
	takes := choose(parts, take, func(h bucket.Hit) bool { return h.Cost >= 0 })
	err := s.runAll(ctx, takes)
	if err != nil || !allowed(takes) {
		if err == nil {
			s.races.Add(1)
		}
		s.giveBackGranted(ctx, takes)
		scatterDenied(takes, all)
		return err
	}
	scatter(takes, all)
	refunds := choose(parts, take, func(h bucket.Hit) bool { return h.Cost < 0 })
	err = s.runAll(ctx, refunds)
	scatter(refunds, all)
	return err
}

// giveBackGranted returns what the parts that were allowed took, postpaid
// charges aside.
func (s *Store) giveBackGranted(ctx context.Context, takes []*part) {
	var granted []*part
	for _, p := range takes {
		if p.err == nil && bucket.Allowed(p.decisions) {
			granted = append(granted, p)
		}
	}
	back := choose(granted, giveBack, func(h bucket.Hit) bool { return !h.Limit.ChargedAnyway(h.Cost) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	// Best effort: what is not returned expires.
	_ = s.runAll(ctx, back)
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

// choose returns parts of the hits that are wanted.
func choose(parts []*part, m mode, wanted func(bucket.Hit) bool) []*part {
	var chosen []*part
	for _, p := range parts {
		c := &part{group: group{mode: m}}
		for i, h := range p.hits {
			if wanted(h) {
				c.add(h, p.of[i], p.decisions[i])
			}
		}
		if len(c.hits) > 0 {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// gather reads the decisions of parts from where their hits stand in the whole.
func gather(parts []*part, all []bucket.Decision) {
	for _, p := range parts {
		for i, j := range p.of {
			p.decisions[i] = all[j]
		}
	}
}

// scatter writes the decisions of parts to where their hits stand in the whole.
func scatter(parts []*part, all []bucket.Decision) {
	for _, p := range parts {
		for i, j := range p.of {
			all[j] = p.decisions[i]
		}
	}
}
