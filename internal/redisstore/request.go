package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// request is one Take, Check or GiveBack on its way; its memory is used again.
type request struct {
	ctx      context.Context
	start    time.Time
	deadline time.Time // of the last reply of Redis
	of       []int     // for each hit of the caller, its index in whole
	// whole is the part with all hits. It is sent as it is, unless isSpread:
	// then a part for each hash tag is sent, and whole gathers the decisions.
	whole *part
	// isSpread is whether the hits have several hash tags on a cluster.
	isSpread bool
	parts    []*part
	// degraded is why Redis did not decide some of the hits.
	degraded fallback.Degraded
	// traced is told how it was decided; nil unless the request is traced.
	traced *bucket.Trace
}

func newRequest() *request { return &request{whole: newPart()} }

// begin returns a request for hits; finish ends its use.
func (s *Store) begin(ctx context.Context, m script.Mode, hits []bucket.Hit) *request {
	r := s.requests.Get().(*request)
	r.ctx, r.start = ctx, time.Now()
	r.deadline = r.start.Add(s.timeoutFor(ctx, r.start))
	if s.onBatch != nil {
		r.traced = bucket.TraceOf(ctx)
	}
	w := r.whole
	w.Mode, w.isWhole = m, true
	w.Hits, r.of = bucket.Merge(w.Hits, r.of[:0], hits)
	w.Decisions = append(w.Decisions, make([]bucket.Decision, len(w.Hits))...)
	r.isSpread = false
	for i := range w.Hits {
		h := &w.Hits[i]
		tag := s.tags.Of(h.Place)
		h.Key = w.copyKey(s.heads[tag], h.Key)
		w.of = append(w.of, i)
		switch {
		case !s.isCluster:
		case i == 0:
			w.tag = tag
		case tag != w.tag:
			r.isSpread = true
		}
	}
	return r
}

// timeoutFor is how long Redis has to answer a caller: no more than four fifths of
// the caller's time, so that the fallback can still decide in the last fifth.
func (s *Store) timeoutFor(ctx context.Context, now time.Time) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return s.timeout
	}
	return min(s.timeout, end.Sub(now)/5*4)
}

func (s *Store) finish(r *request) {
	r.whole.reset()
	clear(r.parts)
	r.ctx, r.traced = nil, nil
	s.requests.Put(r)
}

// copyDecisions writes the decision of each of the caller's hits.
func (r *request) copyDecisions(decisions []bucket.Decision) {
	for i, j := range r.of {
		decisions[i] = r.whole.Decisions[j]
	}
}

// hasQuotas reports whether some hits belong to quotas.
func (r *request) hasQuotas() bool {
	for i := range r.whole.Hits {
		if r.whole.Hits[i].Role > bucket.Enforced {
			return true
		}
	}
	return false
}

// split returns the parts of a request: the whole, or one for each tag. A request
// without hits has none.
func (s *Store) split(r *request) []*part {
	if !r.isSpread && len(r.whole.Hits) > 0 {
		r.parts = append(r.parts[:0], r.whole)
		return r.parts
	}
	parts := r.parts[:0]
	for i, h := range r.whole.Hits {
		tag := s.tags.Of(h.Place)
		at := 0
		for at < len(parts) && parts[at].tag != tag {
			at++
		}
		if at == len(parts) {
			parts = append(parts, s.part(r.whole.Mode, tag))
		}
		parts[at].add(h, i, r.whole.Decisions[i])
	}
	r.parts = parts
	return parts
}

// gather takes over the decisions of the parts from split.
func (r *request) gather(parts []*part) {
	if r.isSpread {
		scatter(parts, r.whole.Decisions)
		return
	}
	for _, p := range parts {
		r.whole = p // or its replacement, if it was abandoned
	}
}

// runAll has every part of a request decided, by Redis or else by the fallback,
// and returns the first error. A part that was abandoned is replaced in parts. now
// is the time, or that of a moment ago.
func (s *Store) runAll(ctx context.Context, r *request, now, deadline time.Time, parts []*part) error {
	s.askRedis(ctx, r, now, deadline, parts)
	var first error
	for _, p := range parts {
		if p.outcome.needsFallback() {
			p.outcome = p.outcome.afterFallback(s.fallBack(ctx, r, p, p.outcome.err))
		}
		if first == nil {
			first = p.outcome.failure()
		}
	}
	return first
}

// askRedis submits all pending parts and waits until each is decided by Redis, or
// left to the fallback.
func (s *Store) askRedis(ctx context.Context, r *request, now, deadline time.Time, parts []*part) {
	var together leg
	for _, p := range parts {
		if p.outcome.isPending() {
			p.ctx, p.deadline = ctx, deadline
			p.SetHash(s.seed)
			if r.traced != nil {
				together.begin(p)
			}
			mayLead := len(parts) == 1 && deadline.Sub(now) >= s.timeout
			if err := s.submit(p, mayLead); err != nil {
				p.outcome = outcome{unasked, err}
			}
		}
	}
	for i, p := range parts {
		if !p.outcome.isPending() {
			continue
		}
		if i > 0 {
			now = time.Now()
		}
		p.wait(now)
		if r.traced != nil {
			together.end(p, r.traced)
		}
		if p.outcome.isUnknown() && p.Mode != script.Check { // which charges nothing
			s.metrics.unknown.Inc()
		}
		if p.status.Load() == abandoned {
			parts[i] = s.replacement(p)
		}
	}
	if r.traced != nil {
		together.addTo(r.traced)
	}
}

// fallBack has the fallback decide a part that Redis did not decide because of
// cause, if the caller still waits. It returns why nobody decided, or nil.
func (s *Store) fallBack(ctx context.Context, r *request, p *part, cause error) error {
	if s.fallback == nil {
		return cause
	}
	switch {
	case p.Mode == script.GiveBack && cause == errTakenElsewhere:
		return s.fallback.GiveBack(ctx, p.Hits, p.Decisions)
	case p.Mode == script.GiveBack:
		return cause // it was taken from Redis
	case ctx.Err() != nil:
		return ctx.Err()
	}
	s.restoreQuotas(r, p)
	reason := reasonOf(cause)
	s.fallback.Add(&r.degraded, p.Hits, reason)
	if r.traced != nil && r.traced.Degraded == "" {
		r.traced.Degraded = string(reason)
	}
	if p.Mode == script.Check {
		return s.fallback.Check(ctx, p.Hits, p.Decisions, cause)
	}
	return s.fallback.Take(ctx, p.Hits, p.Decisions, cause)
}

// TakeDegraded decides a group as Take does where Redis does not answer, without
// asking Redis: for a caller who has a cause to doubt the limits of the hits.
func (s *Store) TakeDegraded(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	if s.fallback == nil {
		return cause
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.fallback.Take(ctx, hits, decisions, cause); err != nil {
		return err
	}
	var degraded fallback.Degraded
	s.fallback.Add(&degraded, hits, fallback.Unsure)
	s.fallback.Count(&degraded)
	return nil
}

// countDegraded counts a decided request if the fallback decided some of it, and
// if the caller still waits.
func (s *Store) countDegraded(r *request) {
	if !r.degraded.Any() {
		return
	}
	if r.ctx.Err() == nil {
		s.fallback.Count(&r.degraded)
	}
	r.degraded = fallback.Degraded{}
}
