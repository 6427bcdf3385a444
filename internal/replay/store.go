package replay

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// states is a bucket.Store whose clock is set by its user. The arithmetic is bucket's, as
// in memstore, which a replay cannot use: on a cluster each hit of a group has the clock
// of its node, how far clocks may differ is up to the recorded daemon, keys that find no
// room end a replay, and a sweep by the wall clock would not be reproducible. Expired
// states are removed, a few whenever a new one is added, so that memory is bounded by the
// live ones.
type states struct {
	// now is the clock, in microseconds since the Unix epoch.
	now int64
	// clocks, if not nil, holds the clocks of the hits of the next line instead: on a
	// cluster each node has its own. A line's hits come all at once, or beside a refusal
	// in two parts.
	clocks []hitClock
	// maxSkew is how far ahead of the clock a state's last time may be, in microseconds.
	maxSkew int64
	// onlyLooks makes Take charge nothing.
	onlyLooks bool

	// max is the maximum number of states kept.
	max   int
	index map[string]*state
	items []*state // the values of index, in no order
	hand  int      // the index in items at which the sweep continues
	// bills are those of the IDs of takes, by bucket.AppendBill; at most max.
	bills map[string]*bucket.Bill

	hits      []bucket.Hit // merged
	of        []int        // for each hit of the caller, its index in hits
	found     []*state     // for each of hits, or nil
	moments   []int64      // for each of hits
	decisions []bucket.Decision
}

// hitClock is the clock of the hit with this key in memory.
type hitClock struct {
	key *byte
	at  int64
}

// state is the state of one key.
type state struct {
	bucket.State
	key string
	at  int // index in states.items
}

var _ bucket.Store = (*states)(nil)

func newStates(maxKeys int) *states {
	return &states{max: max(1, maxKeys), index: make(map[string]*state), maxSkew: bucket.DefaultMaxClockSkew.Microseconds()}
}

// FullError says that more keys are live than a replay may keep.
type FullError struct{ Max int }

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("found more than %s keys whose state still counts; allowed: as many with --max-keys, some 200 bytes each, or limits with shorter periods, or a part of the log", grouped(e.Max))
}

// find merges the hits and finds their states.
func (s *states) find(hits []bucket.Hit) {
	s.hits, s.of = bucket.Merge(s.hits[:0], s.of[:0], hits)
	s.found, s.moments, s.decisions = s.found[:0], s.moments[:0], s.decisions[:0]
	for i := range s.hits {
		s.found = append(s.found, s.index[string(s.hits[i].Key)])
		s.moments = append(s.moments, s.now)
		s.decisions = append(s.decisions, bucket.Decision{})
	}
	if len(s.clocks) > 0 {
		s.setClocks(hits)
	}
}

// setClocks gives hits their own clocks. The hits of a part are in the same order as in
// the whole, so each is searched for after the one before.
func (s *states) setClocks(hits []bucket.Hit) {
	next := 0
	for i := range hits {
		key := unsafe.SliceData(hits[i].Key)
		for range s.clocks {
			c := &s.clocks[next]
			next = (next + 1) % len(s.clocks)
			if c.key == key {
				s.moments[s.of[i]] = c.at
				break
			}
		}
	}
}

// decide decides each merged hit by itself, and reports whether all are allowed.
func (s *states) decide() bool {
	var pending bucket.Pending
	for i := range s.hits {
		h := &s.hits[i]
		demand := h.Demand(pending.Before(s.hits, s.decisions, i))
		if e := s.found[i]; e != nil {
			h.Limit.Mend(&e.State, s.moments[i], s.maxSkew)
			s.decisions[i] = h.Limit.Decide(&e.State, s.moments[i], demand)
		} else {
			s.decisions[i] = h.Limit.DecideFirst(s.moments[i], demand)
		}
	}
	return bucket.GroupAllowed(s.hits, s.decisions)
}

// give gives each of the caller's hits its decision.
func (s *states) give(decisions []bucket.Decision) {
	for i, j := range s.of {
		decisions[i] = s.decisions[j]
	}
}

// Take implements bucket.Store. Its error is a *FullError.
func (s *states) Take(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.find(hits)
	allowed := s.decide()
	if !s.onlyLooks {
		for i := range s.hits {
			h := &s.hits[i]
			e := s.found[i]
			if !bucket.Due(h, &s.decisions[i], allowed) {
				if e != nil {
					e.StartPause(h, s.moments[i], &s.decisions[i])
				}
				continue
			}
			if e == nil {
				if h.Cost <= 0 {
					continue
				}
				var err error
				if e, err = s.insert(h.Key); err != nil {
					return err
				}
				s.found[i] = e
			}
			s.decisions[i] = h.Limit.Charge(&e.State, s.moments[i], h.Demand(0), s.decisions[i])
		}
		s.removeEmpty()
	}
	s.give(decisions)
	return nil
}

// Check implements bucket.Store. It cannot fail.
func (s *states) Check(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.find(hits)
	s.decide()
	s.give(decisions)
	return nil
}

// GiveBack implements bucket.Store. It cannot fail.
func (s *states) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.find(hits)
	for i, j := range s.of {
		s.decisions[j] = decisions[i]
	}
	allowed := bucket.GroupAllowed(s.hits, s.decisions)
	for i, e := range s.found {
		h, d := &s.hits[i], &s.decisions[i]
		if e == nil || d.At <= 0 || !bucket.Charged(h, d, allowed) {
			continue
		}
		h.Limit.Mend(&e.State, s.moments[i], s.maxSkew)
		h.Limit.GiveBack(&e.State, s.moments[i], d.At, h.Demand(0))
	}
	s.removeEmpty()
	return nil
}

// removeEmpty removes the empty ones of the states found. Several hits may have the same
// state.
func (s *states) removeEmpty() {
	for _, e := range s.found {
		if e != nil && e.KeptUntil() == 0 && s.index[e.key] == e {
			s.remove(e)
		}
	}
}

// sweepAtInsert is how many states are checked whenever a new one is added: with two,
// there cannot be more than about twice as many as are live.
const sweepAtInsert = 2

// insert returns a new state, or the one that another hit has just got for this key.
func (s *states) insert(key []byte) (*state, error) {
	if e := s.index[string(key)]; e != nil {
		return e, nil
	}
	s.sweep(sweepAtInsert)
	if len(s.items) >= s.max {
		// A full sweep that frees little would soon be needed again, at the same cost.
		if freed := s.sweep(len(s.items)); freed <= s.max/16 {
			return nil, &FullError{s.max}
		}
	}
	e := &state{key: string(key), at: len(s.items)}
	s.items = append(s.items, e)
	s.index[e.key] = e
	return e, nil
}

// sweep checks n states, removes the expired ones, and returns their number. It leaves
// those of the hits being decided.
func (s *states) sweep(n int) (removed int) {
	for range min(n, len(s.items)) {
		if s.hand >= len(s.items) {
			s.hand = 0
		}
		e := s.items[s.hand]
		if e.KeptUntil() > s.now || s.isInUse(e) {
			s.hand++
			continue
		}
		s.remove(e)
		removed++
	}
	return removed
}

func (s *states) isInUse(e *state) bool {
	for _, used := range s.found {
		if used == e {
			return true
		}
	}
	// A state that was just inserted and not charged yet is the last.
	return e.KeptUntil() == 0
}

func (s *states) remove(e *state) {
	last := len(s.items) - 1
	moved := s.items[last]
	moved.at = e.at
	s.items[e.at] = moved
	s.items[last] = nil
	s.items = s.items[:last]
	delete(s.index, e.key)
}

// Locate implements bucket.Store.
func (s *states) Locate(h *bucket.Hit) bucket.Location { return bucket.Location{Key: string(h.Key)} }

// Forget implements bucket.Store.
func (s *states) Forget(keys []string) {
	for _, key := range keys {
		if e := s.index[key]; e != nil {
			s.remove(e)
		}
	}
}

// Ping implements bucket.Store.
func (s *states) Ping(context.Context) error { return nil }

// Close implements bucket.Store.
func (s *states) Close() error { return nil }
