package redislog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A daemon that was away knows none of the changes made meanwhile, and Redis may have
// lost them since: what Redis has may then be what this daemon has put back. So before it
// decides anything for certain it calls the roll. Each daemon that hears the call looks
// at Redis, puts back what Redis lacks, and answers with how far it is. Only a daemon
// that is as far as all others has caught up.
//
// This is not a question of fleet/ask: an answer may take as long as a put-back, silent
// daemons are asked again, and a single reported loss makes the caller wait for all.

const (
	// answersLive is how long answers live; the caller is gone by then.
	answersLive = 10 * time.Second
	// maxSilent is how long a call waits for daemons that do not answer, such as ones
	// that were killed, if nothing says that Redis has lost anything.
	maxSilent = time.Second
	// callEvery is how often a call is repeated while a daemon is silent: Redis may have
	// lost the call, or the daemon could not reach it.
	callEvery = time.Second
	// maxCalls and maxCallBytes bound what is kept of unanswered calls.
	maxCalls     = 64
	maxCallBytes = 32
)

// hearWithin is how long a call waits if the register is young: for daemons that it lost,
// and that hear the call, to say what Redis lacks. Tests on busy machines raise it.
var hearWithin = 300 * time.Millisecond

// errFurther is why a daemon has not caught up.
var errFurther = fmt.Errorf("redis: another daemon has newer assignments, and is putting them back: %w", errLost)

// errNotCaughtUp is why a change cannot be made at the moment.
var errNotCaughtUp = errors.New("redis: this daemon was away, or has just started, and may lack changes that Redis has lost; other daemons are asked for them")

// CatchUp returns nil once the table has all changes made before it was called that any
// daemon has for which changes wait, and no decision is left that read the table before
// it had them. It fails when ctx ends, or with the reason why Redis could not be
// followed. It needs Run to run.
func (s *Store) CatchUp(ctx context.Context) error {
	s.catchUps.Lock()
	defer s.catchUps.Unlock()
	// What this look finds lost determines how long the call waits for silent daemons.
	if err := s.lookAtAll(ctx); err != nil {
		return err
	}
	losses := s.losses.Load()
	further, err := s.callRoll(ctx)
	if err != nil {
		return err
	}
	if err := s.lookAtAll(ctx); err != nil {
		return err
	}
	if s.losses.Load() != losses {
		// What this daemon has just put back has later IDs than what others have.
		return errFurther
	}
	own := s.readPositions()
	for name, at := range further {
		mine, _ := parseID(own[name].At)
		if mine.compare(at) < 0 {
			return errFurther
		}
	}
	s.hasCaughtUp, s.lossesBefore = true, s.losses.Load()
	return nil
}

// readPositions returns how far the table is. There are no positions where Redis has never let
// this daemon read assignments, for want of rights.
func (s *Store) readPositions() map[string]position {
	if all := s.positions.Load(); all != nil {
		return *all
	}
	return nil
}

// awaitCaughtUp returns an error if this daemon may have missed changes that Redis has
// lost, and that another daemon is to put back. Changes made then would be on top of the
// earlier state, and would stay as changes made since the loss. If Redis does not answer,
// not even when it is asked again, it returns nil: the change may reach the node that has
// its subject, and is never reported as in force.
func (s *Store) awaitCaughtUp(ctx context.Context) error {
	if s.o.CaughtUp == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, awaitRestore)
	defer cancel()
	const maxSilences = 3 // a connection of before may just have been found dead
	for silences := 0; silences < maxSilences; {
		err := s.o.CaughtUp(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLost) {
			silences++
		}
		if !pause(ctx, restoreRetry) {
			return errNotCaughtUp
		}
	}
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

// callRoll makes all other daemons look at Redis, and returns how far the furthest of
// them is, by the names of tags.
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
	isLost := false
	began := time.Now()
	read, called := began, began
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		silent := slices.DeleteFunc(slices.Clone(awaited.IDs), func(id string) bool {
			return id == s.o.ID || answered[id] || slices.Contains(awaited.Mute, id)
		})
		told, err := s.readAnswers(ctx, name, silent, answered, furthest)
		if err != nil {
			return nil, err
		}
		isLost = isLost || told
		// If a register was lost since this daemon was in it, nobody knows who was in it.
		// A daemon that starts does not even know whether one was lost. But any daemon
		// that has something that Redis lacks says so as soon as it hears the call. So do
		// the few that signed in just before a failover.
		isLoss := isLost || s.losses.Load() != s.lossesBefore || s.hasCaughtUp && awaited.Lacks > 0 && !awaited.IsMoved
		isWhole := !slices.ContainsFunc(silent, func(id string) bool { return !answered[id] }) &&
			(awaited.Lacks <= 0 || time.Since(began) >= hearWithin)
		if isWhole && (!isLoss || awaited.Lacks <= 0) || !isLoss && time.Since(began) >= maxSilent {
			return furthest, nil
		}
		if !pause(ctx, wait) {
			return nil, ctx.Err()
		}
		if time.Since(read) >= readEvery {
			if awaited, err = s.o.Awaited(ctx); err != nil {
				return nil, err
			}
			read = time.Now()
		}
		if time.Since(called) >= callEvery {
			if err := s.doorbell.call(ctx, name); err != nil {
				return nil, err
			}
			called = time.Now()
		}
	}
}

func (s *Store) answerKey(call, id string) string { return s.key("answer:" + call + ":" + id) }

// lossKey has a value once a daemon that knows that Redis has lost something has heard a
// call.
func (s *Store) lossKey(call string) string { return s.key("loss:" + call) }

// readAnswers notes which of the daemons have answered a call, and how far they are. It
// reports whether one says that Redis has lost something.
func (s *Store) readAnswers(ctx context.Context, call string, ids []string, answered map[string]bool, furthest map[string]streamID) (isLost bool, _ error) {
	replies := make([]*redis.StringCmd, len(ids))
	var loss *redis.StringCmd
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		loss = pipe.Get(ctx, s.lossKey(call))
		for i, id := range ids {
			replies[i] = pipe.Get(ctx, s.answerKey(call, id))
		}
	})
	if err != nil && err != redis.Nil {
		return false, err
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
	return loss.Err() == nil, nil
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

// answerCall answers calls once this daemon has put back what Redis lacks, if that is
// soon.
func (s *Store) answerCall(ctx context.Context, calls []string) {
	ctx, cancel := context.WithTimeout(ctx, answersLive)
	defer cancel()
	losses := s.losses.Load()
	for isTold := false; ; {
		err := s.lookAtAll(ctx)
		if !isTold && (errors.Is(err, errLost) || s.losses.Load() != losses) {
			isTold = s.tellLoss(ctx, calls) == nil
		}
		if err == nil {
			break
		}
		if !pause(ctx, restoreRetry) {
			return
		}
	}
	at := make(map[string]string)
	for name, p := range s.readPositions() {
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

// tellLoss tells the callers that Redis has lost something.
func (s *Store) tellLoss(ctx context.Context, calls []string) error {
	return s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for _, call := range calls {
			pipe.Set(ctx, s.lossKey(call), s.o.ID, answersLive)
		}
	})
}
