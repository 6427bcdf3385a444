package redislog

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

const (
	// pageOfAssignments is roughly how many assignments are read or written at once.
	pageOfAssignments = 500
	// blocksRoom is how many times MaxAssignments there may be in memory, counting blocks.
	// A subject that should have a plan and gets what the file says is something that an
	// operator can live with; one that should be blocked would be let in.
	blocksRoom = 2
)

// load makes the table what Redis has. s.mu is held.
func (s *Store) load(ctx context.Context) error {
	newest, err := s.redis.XRevRangeN(ctx, s.changes, "+", "-", 1).Result()
	if err != nil {
		return err
	}
	if s.isBegun {
		if s.missing, err = s.findLost(ctx); err != nil {
			return err
		}
	}
	var at, has changeID
	if len(newest) > 0 {
		e, _ := decodeEntry(newest[0]) // which only may not know the rest
		at, has = e.id, e.id
		if e.record.Kind == assign.Restored {
			has = e.previous
		}
	}
	s.others.Store(0)
	s.blocks.Store(0)
	isReload := s.isBegun || s.table.Len() > 0
	s.isBegun = false // if it fails halfway
	found := make(map[string]string)
	for cursor := uint64(0); ; {
		page, next, err := s.redis.HScan(ctx, s.assigned, cursor, "", pageOfAssignments).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if page[i] == idField {
				found[idField] = page[i+1]
				continue
			}
			a, etag, err := decodeValue(page[i+1])
			if err != nil || a.Text() != page[i] {
				s.logForeign(s.assigned, page[i], err)
				continue
			}
			if isReload { // or a million of them would be in memory twice
				found[page[i]] = etag
			}
			if id := versionOf(a); id.compare(has) > 0 {
				has = id // the record of it was lost, or is to be followed
			}
			s.admit(a)
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if found[idField] == "" {
		return errLost // meanwhile
	}
	if isReload {
		for a := range s.table.All() {
			if found[a.Text()] == "" {
				s.table.Delete(a.Subject, "")
			}
		}
	}
	s.isBegun, s.filled, s.recent = true, found[idField], nil
	s.setPosition(at)
	s.has = has
	s.reportLost(found)
	return nil
}

// admit puts an assignment into the table if there is room. s.mu is held.
func (s *Store) admit(a *assign.Assignment) {
	room := s.o.MaxAssignments
	if now := a.Now(); now.Blocked {
		room *= blocksRoom
	}
	if s.table.Len() < room || s.table.Get(a.Subject) != nil {
		s.table.Put(a)
		return
	}
	s.countLeftOut(a, 1)
	if _, due := s.fullLines.Due(time.Now(), logEvery); due {
		s.o.Log.Error("redis: there are more assignments than assignments.max; some are left out, and their subjects get what the limits files say. Raise assignments.max, or remove some",
			"assignments.max", s.o.MaxAssignments)
	}
}

// countLeftOut counts an assignment that has no room, or of which that may have been so;
// by is 1 or -1. Concurrent changes make it inexact; a load starts counting again.
func (s *Store) countLeftOut(a *assign.Assignment, by int64) {
	n := &s.others
	if now := a.Now(); now.Blocked {
		n = &s.blocks
	}
	n.Store(max(0, n.Load()+by))
}

// LeftOut returns roughly how many assignments in Redis this daemon has no room for: those
// that block, and others.
func (s *Store) LeftOut() (blocks, others int64) { return s.blocks.Load(), s.others.Load() }

// isFull reports whether assignments are left out.
func (s *Store) isFull() bool { return s.blocks.Load()+s.others.Load() > 0 }

// Lacks returns why requests should go to other daemons, or nil: something is left out,
// and always has been since the start. A daemon that once had everything continues, since
// the others may have no more room than it, and without any daemon nothing is limited.
func (s *Store) Lacks() error {
	if !s.isFull() || s.wasWhole.Load() {
		return nil
	}
	blocks, others := s.LeftOut()
	return fmt.Errorf("%d assignments are left out, of which %d block: Redis has more than assignments.max, which is %d", blocks+others, blocks, s.o.MaxAssignments)
}
