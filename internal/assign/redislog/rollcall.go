package redislog

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A daemon that was away knows no change that was made meanwhile, and Redis may have lost
// it since: what Redis has may then be what this daemon has put back. So before it decides
// anything for sure it calls the roll. Whoever hears the call looks at Redis, puts back
// what Redis lacks, and answers with how far it is. Only who has come as far as all others
// has caught up.

const (
	// answersLive is how long answers live; who called is gone by then.
	answersLive = 10 * time.Second
	// silentMost is how long a call waits for daemons that do not answer, such as those that
	// were killed, where nothing says that Redis has lost anything.
	silentMost = time.Second
	// maxCalls and maxCallBytes bound what is kept of calls that are not answered yet.
	maxCalls     = 64
	maxCallBytes = 32
)

// errFurther is why a daemon has not caught up.
var errFurther = fmt.Errorf("redis: another daemon has newer assignments, and is putting them back: %w", errLost)

// CatchUp returns nil once the table has all changes that were made before it was called
// and that any daemon has which changes are waited for, and no decision is left that read
// it before it had them. It fails when ctx ends, or with why Redis could not be followed.
// Run must run.
func (s *Store) CatchUp(ctx context.Context) error {
	s.catchUps.Lock()
	defer s.catchUps.Unlock()
	// What this look finds lost says how long the call waits for who does not answer.
	if err := s.lookAtAll(ctx); err != nil {
		return err
	}
	further, err := s.callRoll(ctx)
	if err != nil {
		return err
	}
	if err := s.lookAtAll(ctx); err != nil {
		return err
	}
	own := *s.positions.Load()
	for name, at := range further {
		mine, _ := parseID(own[name].At)
		if mine.compare(at) < 0 {
			return errFurther
		}
	}
	s.hasCaughtUp, s.lossesBefore = true, s.losses.Load()
	return nil
}

// lookAtAll returns nil once Run has looked at all tags and Redis lacks nothing of them.
func (s *Store) lookAtAll(ctx context.Context) error {
	answer := make(chan error, 1)
	s.doorbell.markFor(answer, s.tags)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-answer:
		return err
	}
}

// callRoll has all other daemons look at Redis, and returns how far the furthest of them
// is, by the names of tags.
func (s *Store) callRoll(ctx context.Context) (map[string]streamID, error) {
	if s.o.Awaited == nil {
		return nil, nil
	}
	awaited, err := s.o.Awaited(ctx)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%016x", rand.Uint64())
	if err := s.doorbell.call(ctx, name); err != nil {
		if isForbidden(err) {
			err = nil // see answer
		}
		return nil, err
	}
	furthest := make(map[string]streamID)
	answered := make(map[string]bool)
	began := time.Now()
	read := began
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		silent := slices.DeleteFunc(slices.Clone(awaited.IDs), func(id string) bool {
			return id == s.o.ID || answered[id] || slices.Contains(awaited.Mute, id)
		})
		if err := s.readAnswers(ctx, name, silent, answered, furthest); err != nil {
			return nil, err
		}
		// Of a register that was lost since this daemon was in it, nobody knows whom it had.
		isLoss := s.losses.Load() != s.lossesBefore || s.hasCaughtUp && awaited.Lacks > 0
		isWhole := !slices.ContainsFunc(silent, func(id string) bool { return !answered[id] })
		if isWhole && (!isLoss || awaited.Lacks <= 0) || !isLoss && time.Since(began) >= silentMost {
			return furthest, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		if time.Since(read) >= readEvery {
			if awaited, err = s.o.Awaited(ctx); err != nil {
				return nil, err
			}
			read = time.Now()
		}
	}
}

func (s *Store) answerKey(call, id string) string { return s.key("answer:" + call + ":" + id) }

// readAnswers notes which of the daemons have answered a call, and how far they are.
func (s *Store) readAnswers(ctx context.Context, call string, ids []string, answered map[string]bool, furthest map[string]streamID) error {
	if len(ids) == 0 {
		return nil
	}
	replies := make([]*redis.StringCmd, len(ids))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, id := range ids {
			replies[i] = pipe.Get(ctx, s.answerKey(call, id))
		}
	})
	if err != nil && err != redis.Nil {
		return err
	}
	for i, id := range ids {
		text, err := replies[i].Bytes()
		if err != nil {
			continue
		}
		answered[id] = true
		var at map[string]string
		if err := json.Unmarshal(text, &at); err != nil {
			s.logForeign(s.answerKey(call, id), err)
		}
		for name, position := range at {
			if id, err := parseID(position); err == nil && id.compare(furthest[name]) > 0 {
				furthest[name] = id
			}
		}
	}
	return nil
}

// answerCalls answers the calls of others until ctx ends.
func (s *Store) answerCalls(ctx context.Context) {
	for {
		var calls []string
		select {
		case <-ctx.Done():
			return
		case call := <-s.doorbell.calls:
			calls = append(calls, call)
		}
		for len(s.doorbell.calls) > 0 {
			calls = append(calls, <-s.doorbell.calls)
		}
		s.answerCall(ctx, calls)
	}
}

// answerCall answers calls once this daemon has put back what Redis lacks, if that is soon.
func (s *Store) answerCall(ctx context.Context, calls []string) {
	ctx, cancel := context.WithTimeout(ctx, answersLive)
	defer cancel()
	for s.lookAtAll(ctx) != nil {
		if !pause(ctx, restoreRetry) {
			return
		}
	}
	at := make(map[string]string)
	for name, p := range *s.positions.Load() {
		if p.At != (streamID{}).String() {
			at[name] = p.At
		}
	}
	text, err := json.Marshal(at)
	if err == nil {
		err = s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
			for _, call := range calls {
				pipe.Set(ctx, s.answerKey(call, s.o.ID), text, answersLive)
			}
		})
	}
	if err != nil {
		s.logFailure(ctx, err)
	}
}
