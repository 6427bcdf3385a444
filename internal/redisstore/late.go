package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// An abandoned take may come back decided when its caller has gone, or was denied in
// another way. Costs that it took then stay charged. Slots are given back, since nobody
// will release them: the caller does not know that it has any. A caller who was let
// through without Redis keeps them.
//
// The batch and the caller each say once what they know of such a request. Whoever is
// second gives the slots back, if that is to be done.
const (
	lateOpen uint32 = iota
	lateReplied
	lateKept
	lateDropped
)

// mayTakeLate reports whether a request that was abandoned after it was sent may yet take
// slots.
func (r *request) mayTakeLate() bool {
	if r.Mode != script.Take || r.by.state != unanswered {
		return false
	}
	for i := range r.Hits {
		if r.Hits[i].Holder != "" && r.Hits[i].Cost > 0 {
			return true
		}
	}
	return false
}

// settleLate says of the abandoned pieces of a take whether its caller keeps their slots.
func (s *Store) settleLate(r *request, isLetThrough bool) {
	fate := lateDropped
	if isLetThrough {
		fate = lateKept
	}
	for _, late := range r.late {
		if !late.fate.CompareAndSwap(lateOpen, fate) && !isLetThrough {
			s.giveBackLate(late)
		}
	}
}

// replyLate says that the batch of an abandoned request is back.
func (s *Store) replyLate(r *request) {
	if !r.fate.CompareAndSwap(lateOpen, lateReplied) && r.fate.Load() == lateDropped {
		s.giveBackLate(r)
	}
}

// giveBackLate gives back the slots that an abandoned request newly took.
func (s *Store) giveBackLate(late *request) {
	if late.Err != nil {
		return
	}
	back := s.requests.Get().(*request)
	back.Mode, back.tag = script.GiveBack, late.tag
	allowed := bucket.GroupAllowed(late.Hits, late.Decisions)
	for i := range late.Hits {
		if h, d := &late.Hits[i], late.Decisions[i]; h.Holder != "" && d.At != 0 && bucket.Charged(h, &d, allowed) {
			back.copyHit(late, i, i, d)
		}
	}
	if len(back.Hits) == 0 {
		s.recycle(back)
		return
	}
	s.resends.Go(func() {
		now := time.Now()
		back.start = now
		pieces := []*request{back}
		_ = s.ask(context.Background(), now, now.Add(s.timeout), pieces) // else they lapse
		s.recycle(pieces[0])
	})
}
