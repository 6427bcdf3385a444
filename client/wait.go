package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

var (
	// ErrNever is the error of Wait if no waiting helps: the cost is more than
	// the limit's capacity.
	ErrNever = errors.New("client: it can never be allowed")
	// ErrTooLate is the error of Wait if ctx would end before the wait does. It
	// is a context.DeadlineExceeded.
	ErrTooLate = fmt.Errorf("client: the wait would end too late: %w", context.DeadlineExceeded)
	// ErrDenied is the error of Wait if FailDeny denied.
	ErrDenied = errors.New("client: denied")
)

// Wait asks until the request is allowed, and sleeps in between for as long as
// the answer says. What a leaky_bucket then lets pass at once it holds, for the
// longest Wait of the limits that count the request, so that requests leave
// evenly. It gives up at once, with ErrTooLate, when ctx has a deadline that
// comes before the wait would end, and with ErrNever when no waiting helps. Other
// errors are those of Take.
//
// A request that was allowed, and that Wait did not hold to the end, is given
// back, even when ctx has ended: for that Wait may take the client's timeout
// longer. Where that fails, as it does once the client is closed, the request
// counts; Stats has it among LostGiveBacks.
//
// Those of a process who wait for the same descriptors stand in a line: the
// first of them sleeps until its moment, the others until it is their turn.
// Whoever had to stand in line before it asked sleeps up to a quarter of a
// token's time longer the first time, so that lines of other processes, which
// sleep until the same moment, have their turns too.
func (c *Client) Wait(ctx context.Context, r Request) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	w := &waiter{descriptors: r.Descriptors, turn: make(chan error, 1)}
	w.deadline, w.hasDeadline = ctx.Deadline()
	take := appendTake(nil, &r, true)
	n, isFirst := c.lines.join(string(appendTake(nil, &r, false)), w)
	if n == nil {
		return nil, ErrTooLate
	}
	w.stoodInLine = !isFirst
	for isTurn := isFirst; ; isTurn = false {
		if !isTurn {
			if err := c.await(ctx, n, w); err != nil {
				return nil, err
			}
		}
		result, err := c.askInLine(ctx, &r, take, n, w)
		if err != nil {
			return nil, err
		}
		if result != nil {
			return c.hold(ctx, w, result)
		}
	}
}

// hold returns the result of a request that was allowed at the moment at which it
// may leave. Its turn in line is over: those behind it are held by themselves.
func (c *Client) hold(ctx context.Context, w *waiter, r *Result) (*Result, error) {
	pause := time.Duration(0)
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Allowed && !l.Shadow && w.takes(l.Descriptor) {
			pause = max(pause, l.Wait)
		}
	}
	if pause <= 0 {
		return r, nil
	}
	err := ErrTooLate
	if !w.isLate(time.Now().Add(pause)) {
		err = c.sleep(ctx, pause)
	}
	if err == nil {
		return r, nil
	}
	_ = c.GiveBack(context.WithoutCancel(ctx), r) // Stats counts what is lost
	return nil, err
}

// await waits for the turn of who stands in line.
func (c *Client) await(ctx context.Context, n *line, w *waiter) error {
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
		c.lines.leave(n, w)
		return ctx.Err()
	case <-c.ctx.Done():
		c.lines.leave(n, w)
		return ErrClosed
	}
}

// askInLine asks for who has the turn, until there is an end of it. It returns
// nothing if the turn is another's now.
func (c *Client) askInLine(ctx context.Context, r *Request, take []byte, n *line, w *waiter) (*Result, error) {
	for {
		result, err := c.takeAs(ctx, r, take)
		switch {
		case err != nil:
		case result.Allowed:
			c.lines.passed(n, w, result)
			return result, nil
		case result.RetryAfter == Never:
			err = ErrNever
		case result.RetryAfter == 0:
			err = fmt.Errorf("%w: %w", ErrDenied, result.Failure)
		}
		if err != nil {
			c.lines.done(n, 1)
			return nil, err
		}
		pause, now := result.RetryAfter, time.Now()
		if w.isLate(now.Add(max(pause, w.drain(result)))) {
			c.lines.done(n, 1)
			return nil, ErrTooLate
		}
		if !c.lines.keepTurn(n, w, now, result) {
			return nil, nil
		}
		if w.stoodInLine {
			w.stoodInLine = false
			pause += time.Duration(rand.Int64N(int64(result.tokenTime()/4) + 1))
		}
		if err := c.sleep(ctx, pause); err != nil {
			c.lines.done(n, 1)
			return nil, err
		}
	}
}

func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// tokenTime is how long the limit that denied takes for one more token; 0 for
// windows, whose requests come back together.
func (r *Result) tokenTime() time.Duration {
	l := r.Denier()
	if l == nil || !l.Algorithm.IsBucket() || l.Requests == 0 {
		return 0
	}
	return l.Period / time.Duration(l.Requests)
}

// room is how many more requests of a waiter's costs would be allowed, and
// whether any number would.
func (r *Result) room(w *waiter) (n int, isEndless bool) {
	least := -1
	for i := range r.Limits {
		l := &r.Limits[i]
		taken, _ := w.cost(l.Descriptor)
		if l.Shadow || taken == 0 {
			continue
		}
		if fits := int(float64(l.Remaining) / taken); least < 0 || fits < least {
			least = fits
		}
	}
	return least, least < 0
}

// lines are where those wait who asked about the same descriptors.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
}

// line has those with the turn, who ask or sleep until they do, and those who
// wait for it. It is there as long as somebody has the turn; if more than one
// has, what they were told is that there was room for all.
type line struct {
	key     string
	turns   int
	joined  uint64
	waiting []*waiter // in the order in which they came
	// next is the moment of who sleeps, as far as is known. What denied is a
	// limit of that descriptor: tokenTime is what each of the others' tokens
	// takes after that, and left are tokens that will be there.
	next       time.Time
	descriptor int
	tokenTime  time.Duration
	left       float64
	// drained is when the one who sleeps would be held until, if the limit holds
	// requests, and taken what it takes, which those behind it are held for too.
	drained time.Time
	taken   float64
}

type waiter struct {
	number      uint64
	descriptors []Descriptor
	deadline    time.Time
	hasDeadline bool
	stoodInLine bool
	turn        chan error // nil when it is the waiter's turn
}

// cost is what the waiter takes from a limit of a descriptor, and what has to be
// there: a peek takes nothing.
func (w *waiter) cost(descriptor int) (taken, needed float64) {
	if descriptor >= len(w.descriptors) || w.descriptors[descriptor].Peek {
		return 0, 1
	}
	taken = float64(max(1, w.descriptors[descriptor].Cost))
	return taken, taken
}

// takes reports whether the waiter takes from the limits of a descriptor.
func (w *waiter) takes(descriptor int) bool {
	taken, _ := w.cost(descriptor)
	return taken > 0
}

// drain is how long until all that was taken before has left the limit that
// denied, which is until when it would hold the waiter; 0 if it holds nothing.
func (w *waiter) drain(denied *Result) time.Duration {
	if l := denied.Denier(); l != nil && w.takes(l.Descriptor) {
		return l.Wait
	}
	return 0
}

func (w *waiter) isLate(at time.Time) bool { return w.hasDeadline && at.After(w.deadline) }

// join puts a waiter into the line of key. If there was none it is its turn.
// The line is nil if its turn would come too late.
func (s *lines) join(key string, w *waiter) (n *line, isTurn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.byKey[key]
	if n == nil {
		n = &line{key: key, turns: 1}
		s.byKey[key] = n
		return n, true
	}
	n.joined++
	w.number = n.joined
	n.waiting = append(n.waiting, w)
	n.dismiss()
	if len(n.waiting) == 0 || n.waiting[len(n.waiting)-1] != w {
		return nil, false
	}
	return n, false
}

// dismiss tells those whose turn would come too late.
func (n *line) dismiss() {
	const century = float64(100 * 365 * 24 * time.Hour)
	if n.next.IsZero() {
		return
	}
	after := func(at time.Time, tokens float64) time.Time {
		// Costs may be anything: a wait of over a century is one of a century.
		return at.Add(time.Duration(min(tokens*float64(n.tokenTime), century)))
	}
	ahead := 0.0
	n.waiting = slices.DeleteFunc(n.waiting, func(w *waiter) bool {
		taken, needed := w.cost(n.descriptor)
		isLate := w.isLate(after(n.next, ahead-n.left+needed))
		if taken > 0 && !n.drained.IsZero() {
			isLate = isLate || w.isLate(after(n.drained, n.taken+ahead))
		}
		if isLate {
			w.turn <- ErrTooLate
			return true
		}
		ahead += taken
		return false
	})
}

// leave takes out a waiter that does not want its turn any more.
func (s *lines) leave(n *line, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(n.waiting, w); i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
		return
	}
	if err := <-w.turn; err == nil { // it came at the same time
		s.handOn(n, 1)
	}
}

// passed is the end of a waiter that was allowed: as many others may ask as
// there is room for, at least one.
func (s *lines) passed(n *line, w *waiter, r *Result) {
	more, isEndless := r.room(w)
	if isEndless {
		more = math.MaxInt32
	}
	s.done(n, max(1, more))
}

// done is the end of a waiter that had the turn; up to more others get it.
func (s *lines) done(n *line, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOn(n, more)
}

func (s *lines) handOn(n *line, more int) {
	n.turns--
	n.next = time.Time{}
	for len(n.waiting) > 0 && n.turns < more {
		n.waiting[0].turn <- nil
		n.waiting = slices.Delete(n.waiting, 0, 1)
		n.turns++
	}
	if n.turns == 0 {
		delete(s.byKey, n.key)
	}
}

// keepTurn is called by who was denied just now. Where others have the turn
// too it goes back into the line and waits for another, so that not all sleep
// until the same moment.
func (s *lines) keepTurn(n *line, w *waiter, now time.Time, denied *Result) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.turns > 1 {
		n.turns--
		i, _ := slices.BinarySearchFunc(n.waiting, w.number, func(other *waiter, number uint64) int {
			return int(int64(other.number) - int64(number))
		})
		n.waiting = slices.Insert(n.waiting, i, w)
		return false
	}
	n.next, n.tokenTime, n.descriptor, n.drained = now.Add(denied.RetryAfter), denied.tokenTime(), 0, time.Time{}
	if l := denied.Denier(); l != nil {
		n.descriptor = l.Descriptor
		if l.Wait > 0 {
			n.drained = now.Add(l.Wait)
		}
	}
	taken, needed := w.cost(n.descriptor)
	n.left, n.taken = needed-taken, taken
	n.dismiss()
	return true
}
