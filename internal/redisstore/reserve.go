package redisstore

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
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
	r := s.backend.begin(ctx, script.Take, hits)
	r.Name(reserved.ID, reserved.Lasts, s.backend.seed)
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
	b := s.backend
	r := b.begin(context.WithoutCancel(ctx), script.Settle, hits)
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
