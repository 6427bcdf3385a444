package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// request is one Take, Check or GiveBack on its way; its memory is used again.
type request struct {
	ctx      context.Context
	start    time.Time
	deadline time.Time // of the last answer of Redis
	hits     []bucket.Hit
	of       []int // which of hits each hit of the caller is
	// decisions are those of hits.
	decisions []bucket.Decision
	parts     []*part
}

func (s *Store) begin(ctx context.Context, hits []bucket.Hit) *request {
	r := s.requests.Get().(*request)
	r.ctx, r.start = ctx, time.Now()
	r.deadline = r.start.Add(s.patience(ctx, r.start))
	r.hits, r.of = bucket.Merge(r.hits[:0], r.of[:0], hits)
	r.decisions = append(r.decisions[:0], make([]bucket.Decision, len(r.hits))...)
	return r
}

// patience is how long a caller can wait for Redis: so that it can still use
// another answer, it keeps a fifth of its time for that.
func (s *Store) patience(ctx context.Context, now time.Time) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return s.timeout
	}
	return min(s.timeout, end.Sub(now)/5*4)
}

func (s *Store) finish(r *request) {
	clear(r.hits)
	clear(r.parts)
	r.ctx = nil
	s.requests.Put(r)
}

// tell writes what each hit of the caller got.
func (r *request) tell(decisions []bucket.Decision) {
	for i, j := range r.of {
		decisions[i] = r.decisions[j]
	}
}

// refunds reports whether a hit returns something.
func (r *request) refunds() bool {
	for i := range r.hits {
		if r.hits[i].Cost < 0 {
			return true
		}
	}
	return false
}

// hasQuotas reports whether some hits only have a say together with others.
func (r *request) hasQuotas() bool {
	for i := range r.hits {
		if r.hits[i].Role > bucket.Enforced {
			return true
		}
	}
	return false
}

// split makes the parts of a request: one, or on a cluster one for each tag.
func (s *Store) split(m mode, r *request) []*part {
	parts := r.parts[:0]
	for i, h := range r.hits {
		tag := s.tags.of(h.Place)
		head := s.heads[tag]
		if !s.sharded {
			tag = 0
		}
		at := 0
		for at < len(parts) && parts[at].tag != tag {
			at++
		}
		if at == len(parts) {
			parts = append(parts, s.part(m, tag))
		}
		parts[at].add(head, h, i, r.decisions[i])
	}
	r.parts = parts
	return parts
}

// runAll lets every part be decided, by Redis or else by the fallback, and
// returns the first error. A part whose caller left it is replaced in parts.
func (s *Store) runAll(ctx context.Context, deadline time.Time, parts []*part) error {
	s.askRedis(ctx, deadline, parts)
	var first error
	for _, p := range parts {
		if p.cause != nil {
			p.failed = s.instead(ctx, p)
		}
		if p.failed != nil && first == nil {
			first = p.failed
		}
	}
	return first
}

// askRedis asks for all parts at the same time and waits until each is decided
// or has a cause why it is not. It passes over those that have one already.
func (s *Store) askRedis(ctx context.Context, deadline time.Time, parts []*part) {
	for _, p := range parts {
		if p.cause == nil {
			p.ctx, p.deadline = ctx, deadline
			p.setHash(s.seed)
			p.cause = s.submit(p)
		}
	}
	for i, p := range parts {
		if p.cause != nil {
			continue
		}
		err := p.wait()
		if p.unknown && p.mode != check { // which charges nothing
			s.metrics.unknown.Inc()
		}
		if p.standing.Load() == left {
			p = s.replacement(p)
			parts[i] = p
		}
		p.cause = err
	}
}

// instead lets the fallback answer for a part that Redis did not decide, if the
// caller still waits.
func (s *Store) instead(ctx context.Context, p *part) error {
	if s.fallback == nil {
		return p.cause
	}
	switch {
	case p.mode == giveBack && p.cause == errTakenElsewhere:
		return s.fallback.GiveBack(ctx, p.hits, p.decisions)
	case p.mode == giveBack:
		return p.cause // it was taken from Redis
	case ctx.Err() != nil:
		return ctx.Err()
	case p.mode == check:
		return s.fallback.Check(ctx, p.hits, p.decisions, p.cause)
	}
	return s.fallback.Take(ctx, p.hits, p.decisions, p.cause)
}

// countDegraded counts a request that was not decided by Redis alone.
func (s *Store) countDegraded(ctx context.Context, parts []*part) {
	for _, p := range parts {
		if p.cause != nil && s.fallback != nil && ctx.Err() == nil {
			s.fallback.Count(p.hits, reasonOf(p.cause))
		}
	}
}
