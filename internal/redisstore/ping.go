package redisstore

import "context"

// Ping takes from a limit of its own, so it needs all that a Take needs: it fails on a
// replica, which cannot write. If Redis refuses, its error wraps bucket.ErrRefused,
// like that of Refusal.
func (s *Store) Ping(ctx context.Context) error {
	// Each ping uses another tag, far from the last one: one node that is down is not
	// the whole cluster.
	const golden = 0x9e3779b9 // the golden ratio of 2^32
	far := s.pings.Add(1) * golden
	tag := int(uint64(far) * uint64(len(s.backend.tags)) >> 32)
	return s.explain(tag, s.backend.pipe.Ask(ctx, s.backend.ping(tag)))
}
