package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// ask gets requests decided, by Redis or else by the fallback, and returns the first
// error. In requests, a replacement takes the place of an abandoned one. now is the
// time, or that of a moment ago.
func (s *Store) ask(ctx context.Context, now, deadline time.Time, requests []*request) error {
	var together leg
	mayLead := len(requests) == 1 && deadline.Sub(now) >= s.timeout
	for _, r := range requests {
		if r.by.isPending() {
			r.ctx, r.deadline = ctx, deadline
			if r.caller().traced != nil {
				together.begin(r)
			}
			err := s.nodeOf(r.tag).batcher.enqueue(r, mayLead)
			for err == errClosed && !s.closed.Load() { // the tag has just moved
				err = s.nodeOf(r.tag).batcher.enqueue(r, mayLead)
			}
			if err != nil {
				r.by = decidedBy{unasked, err}
			}
		}
	}
	for i, r := range requests {
		if !r.by.isPending() {
			continue
		}
		if i > 0 {
			now = time.Now()
		}
		r.wait(now)
		if r.trip != nil {
			together.end(r)
		}
		if r.by.isUnknown() && r.Mode != script.Check { // a check charges nothing
			s.metrics.unknown.Inc()
		}
		if r.status.Load() == abandoned {
			requests[i] = s.replacement(r)
			if r.mayTakeLate() {
				caller := requests[i].caller()
				caller.late = append(caller.late, r)
			}
		}
	}
	var first error
	for _, r := range requests {
		if r.by.needsFallback() {
			r.by = r.by.afterFallback(s.fallBack(ctx, r, r.by.err))
		}
		if first == nil {
			first = r.by.failure()
		}
	}
	return first
}

// fallBack lets the fallback decide what Redis did not decide because of cause, if the
// caller still waits. It returns why nobody decided, or nil.
func (s *Store) fallBack(ctx context.Context, r *request, cause error) error {
	if s.fallback == nil {
		return cause
	}
	switch {
	case r.Mode == script.GiveBack && cause == errTakenElsewhere:
		return s.fallback.GiveBack(ctx, r.Hits, r.Decisions)
	case r.Mode == script.GiveBack:
		return cause // it was taken from Redis
	case r.Mode == script.Settle:
		return s.settleLocally(ctx, r, cause)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if r.whole != nil {
		s.restoreQuotas(r)
	}
	caller, reason := r.caller(), reasonOf(cause)
	s.fallback.Add(&caller.degraded, r.Hits, reason)
	if caller.traced != nil && caller.traced.Degraded == "" {
		caller.traced.Degraded = string(reason)
	}
	if r.Mode == script.Check {
		return s.fallback.Check(ctx, r.Hits, r.Decisions, cause)
	}
	if n := r.Named; n != nil {
		return s.fallback.Reserve(ctx, bucket.Reservation{ID: n.ID, Lasts: n.Lasts}, r.Hits, r.Decisions, cause)
	}
	return s.fallback.Take(ctx, r.Hits, r.Decisions, cause)
}

// TakeDegraded decides a group like Take when Redis does not answer, or like Reserve if
// the reservation has an ID, without asking Redis: for a caller with a cause to doubt the
// limits of the hits.
func (s *Store) TakeDegraded(ctx context.Context, reserved bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	if s.fallback == nil {
		return cause
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.fallback.Reserve(ctx, reserved, hits, decisions, cause)
	if ctx.Err() == nil {
		var degraded fallback.Degraded
		s.fallback.Add(&degraded, hits, fallback.Unsure)
		s.fallback.Count(&degraded)
	}
	return err
}

// countDegraded counts a decided request if the fallback decided some of it, and
// if the caller still waits.
func (s *Store) countDegraded(r *request) {
	if r.degraded.Any() && r.ctx.Err() == nil {
		s.fallback.Count(&r.degraded)
	}
}
