package redisstore

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Reserve implements bucket.Store; it fails like Take. If the fallback decides in the
// place of Redis, the bill is there too.
func (s *Store) Reserve(ctx context.Context, reserved bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	if len(hits) == 0 {
		return nil
	}
	r := s.begin(ctx, script.Take, hits)
	r.Name(reserved.ID, reserved.Lasts, s.seed)
	return s.take(r, decisions)
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
	r := s.begin(context.WithoutCancel(ctx), script.Settle, hits)
	r.Name(id, 0, s.seed)
	pieces := s.split(r, script.Settle)
	err := s.ask(r.ctx, r.start, r.deadline, pieces)
	for _, p := range pieces {
		if p.by.state == byRedis && s.fallback != nil {
			_ = s.settleLocally(r.ctx, p, nil) // it has few bills, and cannot fail
		}
		for i, j := range p.of {
			r.Named.Settled[j] = p.Named.Settled[i]
		}
	}
	s.recycleAll(pieces)
	s.denials.forgetHashes(r.Hashes)
	for i, j := range r.merged {
		settled[i] = r.Named.Settled[j]
	}
	s.recycle(r)
	return err
}

// settleLocally settles what the fallback took for the ID of r. What Redis did not settle
// gets what that did. It returns cause unless all hits were settled.
func (s *Store) settleLocally(ctx context.Context, r *request, cause error) error {
	local := make([]bucket.Settled, len(r.Hits))
	if err := s.fallback.Settle(ctx, r.Named.ID, r.Hits, local); err != nil {
		return err
	}
	for i := range local {
		if done := &r.Named.Settled[i]; local[i].IsKnown && !done.IsKnown {
			*done = local[i]
		}
	}
	if slices.ContainsFunc(r.Named.Settled, func(done bucket.Settled) bool { return !done.IsKnown }) {
		return cause
	}
	return nil
}

// undoTake makes a request to settle take out of the bills what a take of its hits
// charged.
func (r *request) undoTake() {
	for i := range r.Hits {
		r.Hits[i].Cost = -r.Hits[i].Cost
	}
}
