// Package turns orders the requests of a process that wait for the same limits: they pass
// in order of arrival. It imports nothing of the project, and knows neither limits nor
// daemons.
//
// Requests with the same key stand in a line. The first of them asks, and sleeps as
// long as a denial says. The others wait for their turn, so that they do not all ask
// at the same moment. They give up at once if their turn would come too late.
package turns

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrTooLate is the error of Wait if ctx would end before the wait does.
var ErrTooLate = errors.New("turns: the wait would end too late")

// Answer is what a request got, as far as waiting depends on it.
type Answer struct {
	Allowed bool

	// More is how many more requests of the same costs would be allowed, if the
	// request was allowed.
	More int
	// Hold is how long the request must wait before it may leave, if it was
	// allowed.
	Hold time.Duration

	// RetryAfter is the time until the request would be allowed, if it was denied;
	// more than 0.
	RetryAfter time.Duration
	// Descriptor is the index of the descriptor whose limit denied.
	Descriptor int
	// TokenTime is how long the limit that denied takes for one more token; 0 for
	// windows, whose requests come back together.
	TokenTime time.Duration
	// Drain is how long until all that was taken before has left the limit that
	// denied; 0 if that limit holds nothing.
	Drain time.Duration
}

// Costs are what a request takes from the limits of each of its descriptors; 0 for a
// peek.
type Costs []uint64

// Of returns the cost of a descriptor; 0 if there is no such descriptor.
func (c Costs) Of(descriptor int) uint64 {
	if descriptor < 0 || descriptor >= len(c) {
		return 0
	}
	return c[descriptor]
}

// Lines has a line for each key that a request waits for. Its methods may be called
// concurrently.
type Lines struct {
	ctx context.Context

	mu    sync.Mutex
	byKey map[string]*line
}

// New returns Lines without a line. When ctx ends, all waits end with its cause.
func New(ctx context.Context) *Lines {
	return &Lines{ctx: ctx, byKey: make(map[string]*line)}
}

// Wait asks until the request is allowed, and returns when it may leave. Requests
// with the same key are about the same limits.
//
// An error of ask ends the wait. So does the end of ctx, and Wait returns ErrTooLate
// as soon as it knows that ctx would end too early. A request that was allowed before
// Wait returned an error has not left.
//
// A request that had to stand in line before it asked sleeps up to a quarter of a
// token's time longer the first time. Lines of other processes sleep until the same
// moment, and have their turns too.
func (s *Lines) Wait(ctx context.Context, key string, costs Costs, ask func() (Answer, error)) error {
	w := &waiter{costs: costs, turn: make(chan error, 1)}
	w.deadline, w.hasDeadline = ctx.Deadline()
	l, isTurn := s.join(key, w)
	if l == nil {
		return ErrTooLate
	}
	w.stoodInLine = !isTurn
	for {
		if !isTurn {
			if err := s.await(ctx, l, w); err != nil {
				return err
			}
		}
		answer, err := s.askInTurn(ctx, l, w, ask)
		if err != nil {
			return err
		}
		if answer.Allowed {
			return s.hold(ctx, w, answer.Hold)
		}
		isTurn = false
	}
}

// await waits for the turn of a waiter that stands in line.
func (s *Lines) await(ctx context.Context, l *line, w *waiter) error {
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
		s.leave(l, w)
		return ctx.Err()
	case <-s.ctx.Done():
		s.leave(l, w)
		return context.Cause(s.ctx)
	}
}

// askInTurn asks for the waiter that has the turn until it is allowed or gives up. It
// returns a denial if another waiter has the turn now.
func (s *Lines) askInTurn(ctx context.Context, l *line, w *waiter, ask func() (Answer, error)) (Answer, error) {
	for {
		answer, err := ask()
		if err != nil {
			s.done(l, 1)
			return answer, err
		}
		if answer.Allowed {
			// At least one other asks, whatever the answer says.
			s.done(l, max(1, answer.More))
			return answer, nil
		}
		now := time.Now()
		if w.isTooLate(now, &answer) {
			s.done(l, 1)
			return answer, ErrTooLate
		}
		if !s.keepTurn(l, w, now, &answer) {
			return answer, nil
		}
		pause := answer.RetryAfter
		if w.stoodInLine {
			w.stoodInLine = false
			pause += time.Duration(rand.Int64N(int64(answer.TokenTime/4) + 1))
		}
		if err := s.sleep(ctx, pause); err != nil {
			s.done(l, 1)
			return answer, err
		}
	}
}

// hold sleeps until an allowed request may leave. Its turn in line is over: the requests
// behind it are held on their own.
func (s *Lines) hold(ctx context.Context, w *waiter, pause time.Duration) error {
	if pause <= 0 {
		return nil
	}
	if w.isLate(time.Now().Add(pause)) {
		return ErrTooLate
	}
	return s.sleep(ctx, pause)
}

func (s *Lines) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// join puts a waiter into the line of key. If there was no line, it is the waiter's
// turn. The line is nil if the turn would come too late.
func (s *Lines) join(key string, w *waiter) (l *line, isTurn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = s.byKey[key]
	if l == nil {
		l = &line{key: key, turns: 1}
		s.byKey[key] = l
		return l, true
	}
	if !l.join(w) {
		return nil, false
	}
	return l, false
}

// leave removes a waiter that no longer wants its turn.
func (s *Lines) leave(l *line, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.leave(w) {
		return
	}
	if err := <-w.turn; err == nil { // it came at the same time
		s.handOn(l, 1)
	}
}

// done ends the turn of a waiter. At most this many others have the turn then.
func (s *Lines) done(l *line, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOn(l, more)
}

func (s *Lines) handOn(l *line, more int) {
	l.handOn(more)
	if l.turns == 0 {
		delete(s.byKey, l.key)
	}
}

// keepTurn reports whether a waiter that was denied just now keeps the turn.
func (s *Lines) keepTurn(l *line, w *waiter, now time.Time, denial *Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.keepTurn(w, now, denial)
}
