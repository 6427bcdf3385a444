package replay

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Reserve implements bucket.Store. Its error is a *FullError.
func (s *states) Reserve(ctx context.Context, r bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	rooms := s.rooms(hits)
	if err := s.Take(ctx, hits, decisions); err != nil || s.onlyLooks {
		return err
	}
	allowed := bucket.GroupAllowed(s.hits, s.decisions)
	for i := range s.hits {
		h, d := &s.hits[i], &s.decisions[i]
		if !h.IsReserved() || !bucket.Charged(h, d, allowed) {
			continue
		}
		b, err := s.bill(h, r.ID, s.moments[i])
		if err != nil {
			return err
		}
		cost := h.Cost
		if rooms != nil {
			cost = min(cost, rooms[i])
		}
		b.Add(h.Limit, s.moments[i], d.At, cost, r.Lasts)
	}
	return nil
}

// rooms returns the bucket.Rooms of the merged hits.
func (s *states) rooms(hits []bucket.Hit) []int64 {
	if !slices.ContainsFunc(hits, func(h bucket.Hit) bool { return h.Limit.ChargedAnyway(h.Cost) }) {
		return nil // as of most takes, whose states are then looked for once
	}
	s.find(hits)
	return bucket.Rooms(s.hits, s.maxSkew, func(i int) (*bucket.State, int64) {
		if e := s.found[i]; e != nil {
			return &e.State, s.moments[i]
		}
		return nil, s.moments[i]
	})
}

// bill returns the bill of an ID beside the state of a hit's key, or a new one.
func (s *states) bill(h *bucket.Hit, id string, clock int64) (*bucket.Bill, error) {
	key := bucket.AppendBill(nil, h.Key, id)
	if b := s.bills[string(key)]; b != nil {
		return b, nil
	}
	if len(s.bills) >= s.max {
		before := len(s.bills)
		for key, b := range s.bills {
			if !b.IsKnown(clock) {
				delete(s.bills, key)
			}
		}
		if before-len(s.bills) <= s.max/16 {
			return nil, &FullError{s.max}
		}
	}
	if s.bills == nil {
		s.bills = make(map[string]*bucket.Bill)
	}
	b := new(bucket.Bill)
	s.bills[string(key)] = b
	return b, nil
}

// Settle implements bucket.Store. Its error is a *FullError.
func (s *states) Settle(_ context.Context, id string, hits []bucket.Hit, settled []bucket.Settled) error {
	s.find(hits)
	done := make([]bucket.Settled, len(s.hits))
	for i := range s.hits {
		done[i].At = s.moments[i]
		h := &s.hits[i]
		key := string(bucket.AppendBill(nil, h.Key, id))
		b := s.bills[key]
		if b == nil || !b.IsKnown(s.moments[i]) {
			continue
		}
		e := s.found[i]
		if e == nil {
			var err error
			if e, err = s.insert(h.Key); err != nil {
				return err
			}
			s.found[i] = e
		}
		h.Limit.Mend(&e.State, s.moments[i], s.maxSkew)
		done[i] = b.Settle(h.Limit, &e.State, s.moments[i], h.Cost)
		if done[i].Takes == 0 {
			delete(s.bills, key)
		}
	}
	s.removeEmpty()
	for i, j := range s.of {
		settled[i] = done[j]
	}
	return nil
}
