package redisstore

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Store is a bucket.Store in Redis.
type Store struct {
	backend      *backend
	denials      *denials // nil: off
	redis        *redisconn.Conn
	clock        func() int64 // may be nil
	knownDenials prometheus.Counter
	pings        atomic.Uint32
}

var _ bucket.Store = (*Store)(nil)

// New returns a store on the servers that conn reaches. If conn does not load
// script.Source into them, the first command to each does. A Take, Check or
// GiveBack takes no longer than the timeout of conn; a Take over several hash
// tags of a cluster that lost a race may take as long again, to give back what it
// took. conn belongs to the caller, who closes it after the store. New fails only
// on invalid options.
func New(conn *redisconn.Conn, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{
		backend: newBackend(conn, &o),
		redis:   conn,
		clock:   o.Clock,
		knownDenials: promauto.With(o.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_known_denials_total",
			Help: "Requests that were denied without a call, for Redis had just denied the same.",
		}),
	}
	if o.DenialMemory > 0 {
		s.denials = newDenials(o.DenialMemory, cmp.Or(o.DenialBytes, DefaultDenialBytes), s.backend.seed, s.denialTime)
	}
	return s, nil
}

// denialTime returns now, or in tests the time of the clock that replaces it.
func (s *Store) denialTime(now time.Time) time.Time {
	if s.clock == nil {
		return now
	}
	return time.UnixMicro(s.clock())
}

// Close decides or fails the waiting requests, ends the store's goroutines and removes
// its metrics. It returns nil.
func (s *Store) Close() error {
	s.backend.close()
	return nil
}

// Take implements bucket.Store. It fails when ctx ends; a caller who sends to an idle
// node then returns only with the reply, or after the timeout. Redis has the timeout,
// or four fifths of the time until the deadline of ctx if that is less. If Redis does
// not answer by then, or answers with an error, the fallback decides. Then Take fails
// if there is no fallback, or if a limit asks for that.
func (s *Store) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.Reserve(ctx, bucket.Reservation{}, hits, decisions)
}

// Reserve implements bucket.Store; it fails like Take. If the fallback decides in the
// place of Redis, the bill is there too. Without an ID it is a Take.
func (s *Store) Reserve(ctx context.Context, reserved bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	if len(hits) == 0 {
		return nil
	}
	r := s.backend.newRequest(ctx, script.Take, hits)
	if reserved.ID != "" {
		r.Name(reserved.ID, reserved.Lasts, s.backend.seed)
	}
	return s.take(r, decisions)
}

// take decides a request to take, and ends its use.
func (s *Store) take(r *request, decisions []bucket.Decision) (err error) {
	if s.isKnownDenied(r) {
		s.backend.finish(r, decisions)
		return nil
	}
	if r.isSpread {
		err = s.backend.takeAcross(r)
	} else {
		err = s.backend.ask(r.ctx, r.start, r.deadline, r)
	}
	s.endTake(r, decisions, err)
	return err
}

// isKnownDenied reports whether a take is denied without asking Redis, and has its
// decisions.
func (s *Store) isKnownDenied(r *request) (isKnown bool) {
	if r.question, isKnown = s.denials.known(r.start, &r.Group); isKnown {
		s.knownDenials.Inc()
		if r.traced != nil {
			r.traced.Known = true
		}
	}
	return isKnown
}

// endTake ends a take that was decided, or was not because of err.
func (s *Store) endTake(r *request, decisions []bucket.Decision, err error) {
	if r.late != nil && (err != nil || !bucket.GroupAllowed(r.Hits, r.Decisions)) {
		s.backend.dropLate(r)
	}
	s.backend.countDegraded(r)
	if r.isGivenBack {
		s.denials.forgetHashes(r.Hashes)
	}
	s.denials.learn(r.question, &r.Group, err == nil)
	s.backend.finish(r, decisions)
}

// NodeOf returns what decides hits, as far as is known: TakeMany may take them with others
// of the same node. It is nil if their keys are on several hash tags of a cluster.
func (s *Store) NodeOf(hits []bucket.Hit) any {
	tag, isSpread := s.backend.tagOf(hits)
	if isSpread {
		return nil
	}
	return s.backend.pipe.NodeOf(tag)
}

// TakeMany is Take for several requests of one caller, each decided by itself. It returns
// when all are decided, so they should have one node.
func (s *Store) TakeMany(ctx context.Context, takes []bucket.Take) {
	requests, of := make([]*request, 0, len(takes)), make([]int, 0, len(takes))
	for i := range takes {
		r := s.backend.newRequest(ctx, script.Take, takes[i].Hits)
		switch {
		case r.isSpread:
			takes[i].Err = s.take(r, takes[i].Decisions)
		case s.isKnownDenied(r):
			s.backend.finish(r, takes[i].Decisions)
		default:
			requests, of = append(requests, r), append(of, i)
		}
	}
	if len(requests) == 0 {
		return
	}
	_ = s.backend.ask(ctx, requests[0].start, requests[0].deadline, requests...) // each knows its own error
	for i, r := range requests {
		take := &takes[of[i]]
		take.Err = r.err
		s.endTake(r, take.Decisions, take.Err)
	}
}

var errLength = errors.New("redis: as many decisions as hits are needed")

// Check implements bucket.Store; it fails like Take. On a cluster it checks the hash
// tags at the same time, each by itself.
func (s *Store) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	b := s.backend
	r := b.newRequest(ctx, script.Check, hits)
	pieces := b.split(r, script.Check)
	err := b.ask(ctx, r.start, r.deadline, pieces...)
	scatter(pieces, r.Decisions)
	b.recycleAll(pieces)
	b.finish(r, decisions) // degraded answers are counted when they are taken
	return err
}

// GiveBack implements bucket.Store. It asks Redis even when ctx has ended. What
// the fallback took is given back to the fallback.
func (s *Store) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	b := s.backend
	r := b.newRequest(context.WithoutCancel(ctx), script.GiveBack, hits)
	for i, j := range r.merged {
		r.Decisions[j] = decisions[i]
	}
	pieces := b.split(r, script.GiveBack)
	allowed := bucket.GroupAllowed(r.Hits, r.Decisions)
	charged := b.choose(pieces, script.GiveBack, func(h *bucket.Hit, d *bucket.Decision) bool {
		return bucket.Charged(h, d, allowed)
	})
	b.recycleAll(pieces)
	// Each of these hits was charged, so each is given back, whatever the roles of the
	// others in its piece.
	putQuotasAside(charged)
	for _, p := range charged {
		if p.Decisions[0].Degraded {
			p.skipped = errTakenElsewhere
		}
	}
	err := b.ask(r.ctx, r.start, r.deadline, charged...)
	scatter(charged, r.Decisions)
	b.recycleAll(charged)
	s.denials.forgetHashes(r.Hashes)
	b.finish(r, decisions)
	return err
}

// Settle implements bucket.Store. It asks Redis even when ctx has ended, on a cluster all
// hash tags at the same time, and settles what the fallback took for the ID too: where a
// take's outcome was unknown, both may have been charged. It fails if Redis does not
// answer, unless the fallback has all the bills.
func (s *Store) Settle(ctx context.Context, id string, hits []bucket.Hit, settled []bucket.Settled) error {
	if len(hits) != len(settled) {
		return errLength
	}
	if len(hits) == 0 {
		return nil
	}
	b := s.backend
	r := b.newRequest(context.WithoutCancel(ctx), script.Settle, hits)
	r.Name(id, 0, b.seed)
	pieces := b.split(r, script.Settle)
	err := b.ask(r.ctx, r.start, r.deadline, pieces...)
	for _, p := range pieces {
		if p.State() == pipe.Decided && b.fallback != nil {
			_ = b.settleLocally(r.ctx, p) // it has few bills, and cannot fail
		}
		for i, j := range p.of {
			r.Named.Settled[j] = p.Named.Settled[i]
		}
	}
	b.recycleAll(pieces)
	s.denials.forgetHashes(r.Hashes)
	for i, j := range r.merged {
		settled[i] = r.Named.Settled[j]
	}
	b.recycle(r)
	return err
}
