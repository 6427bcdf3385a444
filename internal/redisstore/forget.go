package redisstore

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// Locate implements bucket.Store. The node is the one that the next take would be
// sent to; a cluster may have moved the tag since.
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

// Forget implements bucket.Store: no denial that involves one of these keys is
// repeated any more, and the fallback has no state of them. Who deletes the states
// in Redis calls it afterwards. It costs as much for each key, however many denials
// are remembered.
//
// A take that Redis denied before the states were deleted, and whose denial comes
// after Forget, is not remembered either: it was asked under older counts of
// changes.
func (s *Store) Forget(keys []string) {
	s.denials.forget(keys)
	if s.fallback != nil {
		s.fallback.Forget(keys)
	}
}
