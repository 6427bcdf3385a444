package redisstore

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// Locate implements bucket.Store. The node is the one to which the next take would be
// sent; a cluster may have moved the tag since.
func (s *Store) Locate(h *bucket.Hit) bucket.Location {
	b := s.backend
	tag, key := b.locate(h)
	l := bucket.Location{
		Key:       key,
		Tag:       b.tags[tag],
		Node:      s.redis.NodeName(b.pipe.AddressOf(tag)),
		OnFailure: bucket.FailError,
	}
	if b.fallback != nil {
		b.fallback.Locate(h, &l)
	}
	return l
}

// Forget implements bucket.Store: denials that involve one of these keys are not
// repeated any more, and the fallback loses the states of the keys. It is called after
// the states in Redis were deleted. A denial that Redis gave before that, and that comes
// after Forget, is not remembered.
func (s *Store) Forget(keys []string) {
	s.denials.forget(keys)
	if local := s.backend.fallback; local != nil {
		local.Forget(keys)
	}
}
