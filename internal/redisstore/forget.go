package redisstore

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// Locate implements bucket.Store. The node is the one to which the next take would be
// sent; a cluster may have moved the tag since.
func (s *Store) Locate(h *bucket.Hit) bucket.Location {
	tag := s.tags.Of(h.Place)
	l := bucket.Location{
		Key:       s.heads[tag] + string(h.Key),
		Tag:       s.tags[tag],
		Node:      s.redis.NodeName(s.nodeOf(tag).address),
		OnFailure: bucket.FailError,
	}
	if s.fallback != nil {
		s.fallback.Locate(h, &l)
	}
	return l
}

// Forget implements bucket.Store: denials that involve one of these keys are not
// repeated any more, and the fallback loses the states of the keys. It is called after
// the states in Redis were deleted. A denial that Redis gave before that, and that comes
// after Forget, is not remembered.
func (s *Store) Forget(keys []string) {
	s.denials.forget(keys)
	if s.fallback != nil {
		s.fallback.Forget(keys)
	}
}
