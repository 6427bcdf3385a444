package redislog

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// Redis may have more assignments than MaxAssignments: this daemon's bound was lowered,
// or another daemon has a larger one. Memory must stay bounded, so some are left out. A
// subject that should have a plan then gets what the file says, which an operator can
// live with; one that should be blocked would be let in. So blocks have as much room
// again. What is left out is never acknowledged as in force, so whoever makes such a
// change is told.

// blocksRoom is how many times MaxAssignments there may be, counting blocks.
const blocksRoom = 2

// mendEvery is how often tags of which something was left out are loaded again, if there
// is room. If all of it should fit, that is done at once.
const mendEvery = 10 * time.Minute

// leftOut counts assignments that are in Redis but, for lack of room, not in the table.
// Concurrent changes make it inexact; a load starts counting again.
type leftOut struct{ all, blocks int }

// add counts an assignment; by is 1 or -1.
func (l *leftOut) add(a *assign.Assignment, by int) {
	l.all = max(0, l.all+by)
	if a.Blocked {
		l.blocks = max(0, l.blocks+by)
	}
}

// admit puts an assignment of a tag into the table if there is room, and reports
// whether there was.
func (s *Store) admit(t *tag, a *assign.Assignment) bool {
	maxAssignments := s.o.MaxAssignments
	if a.Blocked {
		maxAssignments *= blocksRoom
	}
	if s.table.Len() >= maxAssignments && s.table.Get(a.Subject) == nil {
		t.leftOut.add(a, 1)
		return false
	}
	s.table.Put(a)
	return true
}

// apply applies a change to the table.
func (s *Store) apply(t *tag, r *assign.Record) {
	if t.leftOut.all > 0 && r.Before != nil && s.table.Get(r.Subject) == nil {
		t.leftOut.add(r.Before, -1) // it is changed, so it is considered again
	}
	if r.After == nil {
		s.table.Delete(r.Subject, "")
		return
	}
	s.admit(t, r.After)
}

// mend reloads tags of which something was left out, if there is room now.
func (s *Store) mend(now time.Time) {
	lacking, room := s.leftOut().all, s.o.MaxAssignments-s.table.Len()
	if lacking == 0 || room <= 0 || room < lacking && now.Sub(s.mended) < mendEvery {
		return
	}
	s.mended = now
	for _, t := range s.tags {
		if t.leftOut.all > 0 {
			t.isLoaded = false
			s.doorbell.mark(t)
		}
	}
}

// leftOut returns what is left out of all tags. Only Run calls it.
func (s *Store) leftOut() (all leftOut) {
	for _, t := range s.tags {
		all.all += t.leftOut.all
		all.blocks += t.leftOut.blocks
	}
	return all
}

// tellLeftOut logs what is left out.
func (s *Store) tellLeftOut() {
	l := s.leftOut()
	s.lacking.Store(&l)
	if l.all == 0 {
		s.fullLines.Reset()
		if s.Loaded() {
			s.wasWhole.Store(true)
		}
		return
	}
	if n, due := s.fullLines.Due(time.Now(), logEvery); due {
		s.o.Log.Error("redis: there are more assignments than assignments.max; some are left out, and their subjects get what the limits files say. Raise assignments.max, or remove some",
			"left_out", l.all, "blocks_left_out", l.blocks, "assignments.max", s.o.MaxAssignments, "unlogged_before", n)
	}
}

// LeftOut returns roughly how many assignments in Redis this daemon has no room for, and
// how many of them block.
func (s *Store) LeftOut() (all, blocks int) {
	if l := s.lacking.Load(); l != nil {
		return l.all, l.blocks
	}
	return 0, 0
}

// Lacks returns why requests should go to other daemons, or nil: something is left out,
// and always has been since the start. A daemon that once had everything continues, since
// the others may have no more room than it, and without any daemon nobody is limited.
func (s *Store) Lacks() error {
	if all, blocks := s.LeftOut(); all > 0 && !s.wasWhole.Load() {
		return fmt.Errorf("%d assignments are left out, of which %d block: Redis has more than assignments.max, which is %d", all, blocks, s.o.MaxAssignments)
	}
	return nil
}
