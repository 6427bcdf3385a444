package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// takeAcross takes a request whose keys are on several hash tags of a cluster, where no
// command is atomic over all. It checks every piece first, charging nothing, and takes
// only if all allow. So a denied request costs nothing, unless it loses a race between
// check and take; then what the other pieces took is given back.
func (b *backend) takeAcross(r *request) error {
	// A check that gets no answer must leave time for the takes.
	early := r.start.Add(r.deadline.Sub(r.start) / 2)
	checks := b.split(r, script.Check)
	defer b.recycleAll(checks)
	err := b.ask(r.ctx, r.start, early, checks...)
	scatter(checks, r.Decisions)
	if err != nil {
		return err
	}
	if !bucket.GroupAllowed(r.Hits, r.Decisions) {
		return b.chargeDenied(r, checks)
	}
	// Refunds cannot deny, so they wait until nothing else can. Hits that are charged
	// whatever the group gets do not wait.
	takes := b.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return !waits(h) })
	defer b.recycleAll(takes)
	putQuotasAside(takes)
	err = b.ask(r.ctx, time.Now(), r.deadline, takes...)
	if err != nil || !r.allowed(takes) {
		if err == nil {
			b.races.Inc()
		}
		b.giveBackGranted(r, takes)
		scatterDenied(takes, r.Decisions)
		return err
	}
	scatter(takes, r.Decisions)
	refunds := b.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return waits(h) })
	defer b.recycleAll(refunds)
	passOnCauses(takes, refunds)
	if err := b.ask(r.ctx, time.Now(), r.deadline, refunds...); err != nil {
		b.giveBackGranted(r, takes)
		return err
	}
	scatter(refunds, r.Decisions)
	return nil
}

// waits reports whether a hit is taken only after all others.
func waits(h *bucket.Hit) bool { return h.Cost < 0 && !h.Limit.ChargedAnyway(h.Cost) }

// passOnCauses makes Redis not be asked again where it did not decide earlier requests of
// the same tags.
func passOnCauses(from, to []*request) {
	for _, r := range to {
		for _, before := range from {
			if r.Tag == before.Tag && r.skipped == nil {
				r.skipped = before.Cause
			}
		}
	}
}

// chargeDenied charges those hits of a denied group that are charged anyway, and starts
// the pauses of those that their limits deny.
func (b *backend) chargeDenied(r *request, checks []*request) error {
	b.startPauses(r, checks)
	charged := b.choose(checks, script.Take, func(h *bucket.Hit, _ *bucket.Decision) bool { return h.Limit.ChargedAnyway(h.Cost) })
	defer b.recycleAll(charged)
	err := b.ask(r.ctx, time.Now(), r.deadline, charged...)
	scatterCharged(charged, r.Decisions)
	return err
}

// startPauses starts the pauses of hits that their limits deny by the checks. Where Redis
// does not answer, the denial stands without a pause.
func (b *backend) startPauses(r *request, checks []*request) {
	paused := b.choose(checks, script.Pause, (*bucket.Hit).StartsPause)
	defer b.recycleAll(paused)
	_ = b.ask(r.ctx, time.Now(), r.deadline, paused...)
	for _, p := range paused {
		if p.State() == pipe.Decided {
			scatterCharged([]*request{p}, r.Decisions)
		}
	}
}

// giveBackGranted gives back what the allowed takes took, to Redis or to the
// fallback; postpaid charges stay.
func (b *backend) giveBackGranted(r *request, takes []*request) {
	var granted []*request
	for _, t := range takes {
		if t.err == nil && bucket.GroupAllowed(t.Hits, t.Decisions) {
			granted = append(granted, t)
		}
	}
	mode := script.GiveBack
	if r.Named != nil {
		mode = script.Settle
	}
	back := b.choose(granted, mode, func(h *bucket.Hit, d *bucket.Decision) bool {
		return !h.Limit.ChargedAnyway(h.Cost) && bucket.Charged(h, d, true)
	})
	for _, p := range back {
		if mode == script.Settle {
			p.undoTake()
		}
		if p.skipped != nil {
			p.skipped = errTakenElsewhere
		}
	}
	defer b.recycleAll(back)
	// Best effort: what is not given back expires.
	now := time.Now()
	_ = b.ask(context.WithoutCancel(r.ctx), now, now.Add(b.timeout), back...)
	r.isGivenBack = true
}

// undoTake makes a request to settle take out of the bills what a take of its hits
// charged.
func (r *request) undoTake() {
	for i := range r.Hits {
		r.Hits[i].Cost = -r.Hits[i].Cost
	}
}
