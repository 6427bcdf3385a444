package redislog

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

const (
	// refreshTimeout bounds how long Redis has to say what has changed, so that the next
	// time is not late.
	refreshTimeout = 900 * time.Millisecond
	// pageOfRecords is how many records are read at once.
	pageOfRecords = 500
	// sweepEvery is after how many looks what has ended is removed.
	sweepEvery = 60
	// idField of the hash says that it is whole: see append.lua. No subject has this text.
	idField = "~id"
)

// Run implements assign.Store. It ends within a second or so after ctx.
func (s *Store) Run(ctx context.Context) {
	s.loadSnapshot()
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() {
		for pause(ctx, sweepEvery*s.o.Every/2+rand.N(sweepEvery*s.o.Every)) {
			s.logFailure(ctx, s.Sweep(ctx))
		}
	})
	if s.o.CachePath != "" {
		background.Go(func() { s.keepSnapshots(ctx) })
	}
	for {
		next := time.Now().Add(s.o.Every)
		s.mu.Lock()
		err := s.refresh(ctx)
		s.mu.Unlock()
		s.logFailure(ctx, err)
		if errors.Is(err, errLost) {
			next = time.Now().Add(s.o.Every / 10) // another daemon is about to end it
		}
		if !pause(ctx, time.Until(next)) {
			return
		}
	}
}

// refresh brings the table up to date. s.mu is held.
func (s *Store) refresh(ctx context.Context) error {
	for {
		filled, records, err := s.read(ctx)
		if err != nil {
			return err
		}
		isFollowed := s.isBegun && s.follow(records)
		isWhole := filled != "" && (filled == s.filled || strings.HasPrefix(filled, s.has.String()+" "))
		switch {
		case isFollowed && len(records) == pageOfRecords:
			continue
		case isFollowed && isWhole:
			s.filled = filled
			s.loaded.Store(true)
			s.wasWhole.Store(s.wasWhole.Load() || !s.isFull())
			return nil
		}
		isThere, err := s.restore(ctx)
		if err == nil && isThere {
			err = s.load(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// read returns what says that the hash is whole, and the records from the last followed one
// on. That one comes again, unless it was removed for its age, or lost.
func (s *Store) read(ctx context.Context) (filled string, _ []redis.XMessage, _ error) {
	ctx, cancel := context.WithTimeout(ctx, min(refreshTimeout, s.redis.Timeout()))
	defer cancel()
	pipe := s.redis.Pipeline()
	id, records := pipe.HGet(ctx, s.assigned, idField), pipe.XRangeN(ctx, s.changes, s.at.String(), "+", pageOfRecords)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return "", nil, err
	}
	return id.Val(), records.Val(), records.Err()
}

// follow takes over records, and reports whether they go on from the last one. s.mu is
// held.
func (s *Store) follow(records []redis.XMessage) bool {
	if len(records) == 0 {
		return s.at == changeID{} // or the record is lost that comes again
	}
	if records[0].ID == s.at.String() {
		records = records[1:]
	}
	for _, m := range records {
		e, err := decodeEntry(m)
		if e.previous != s.at || e.id == s.at {
			return false
		}
		if err != nil {
			s.logForeign(s.changes, m.ID, err)
		}
		s.setPosition(e.id)
		switch r := &e.record; r.Kind {
		case assign.Assigned, assign.Unassigned:
			s.put(&e)
		case assign.Restored:
			s.has = e.previous
		case assign.WasReset:
			s.forget(e.keys)
		}
		if err == nil {
			s.watchers.Notify(e.record)
		}
	}
	return true
}

// setPosition notes the last record that was followed.
func (s *Store) setPosition(at changeID) {
	s.at, s.has = at, at
	text := ""
	if at != (changeID{}) {
		text = at.String()
	}
	s.position.Store(&text)
}

// put puts a change into the table, unless that has a newer one: it may follow a load that
// found the newer one already. s.mu is held.
func (s *Store) put(e *entry) {
	r := &e.record
	held := s.table.Get(r.Subject)
	if held != nil && versionOf(held).compare(e.id) > 0 {
		return
	}
	s.noteRecent(e)
	if held == nil && r.Before != nil {
		s.countLeftOut(r.Before, -1)
	}
	if r.After == nil { // nothing, or what this version cannot read
		s.table.Delete(r.Subject, "")
		return
	}
	s.admit(r.After)
}

// forget forgets what this daemon remembers of states.
func (s *Store) forget(keys []string) {
	if s.o.Hooks.Forget != nil && len(keys) > 0 {
		s.o.Hooks.Forget(keys)
	}
}
