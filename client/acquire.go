package client

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Acquire waits until the request is allowed, and then has the slots of its descriptors with
// a HolderKey until Slot.Release. It returns ErrNever when waiting cannot help, ErrTooLate
// when ctx has a deadline that comes before a rate allows the request, ErrDenied if FailDeny
// denied it, and the error of ctx when that ends first; other errors are those of Take. ctx
// bounds only the wait: the slot stays when it ends.
//
// When a slot is free no one knows, so Acquire asks again after pauses that grow to a second
// and differ at random, and at once when this process releases a slot of the same
// descriptors. Of the requests of a process that wait for the same slots only the first one
// asks; the others follow in their order.
func (c *Client) Acquire(ctx context.Context, r Request) (*Slot, error) {
	if err := r.named().check(); err != nil {
		return nil, err
	}
	q, isFirst := c.queues.enter(r.slotsKey())
	defer c.queues.leave(q)
	if isFirst { // as long as slots are free, no one waits for the answer to another
		if s, _, err := c.tryInTurn(ctx, &r, 0); s != nil || err != nil {
			return s, err
		}
	}
	select {
	case <-q.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
	defer func() { q.turn <- struct{}{} }()
	for tries := 0; ; tries++ {
		s, pause, err := c.tryInTurn(ctx, &r, tries)
		if s != nil || err != nil {
			return s, err
		}
		if err := c.pauseFor(ctx, q, pause); err != nil {
			return nil, err
		}
	}
}

// TryAcquire is Acquire without waiting. If the request is denied, the Slot is nil, and the
// Result says why. Otherwise the Result is also that of the Slot.
func (c *Client) TryAcquire(ctx context.Context, r Request) (*Slot, *Result, error) {
	if err := r.named().check(); err != nil {
		return nil, nil, err
	}
	return c.tryAcquire(ctx, &r)
}

// Do calls f while it has a slot that it waits for as Acquire does, and returns its error.
// The context of f ends with ctx, and when the slot is lost; its cause is then ErrSlotLost.
// The slot is released when f has returned or panicked.
func (c *Client) Do(ctx context.Context, r Request, f func(context.Context) error) error {
	s, err := c.Acquire(ctx, r)
	if err != nil {
		return err
	}
	defer s.Release()
	ctx, cancel := s.Context(ctx)
	defer cancel()
	return f(ctx)
}

// named returns the request with a holder's name: its own, or one that no other has.
func (r *Request) named() *Request {
	if r.Holder != "" {
		return r
	}
	named := *r
	named.Holder = rand.Text()
	return &named
}

func (c *Client) tryAcquire(ctx context.Context, r *Request) (*Slot, *Result, error) {
	const usual = 128
	named := r.named()
	take := appendTake(make([]byte, 0, usual), named, true)
	began := time.Now()
	result, err := c.takeAs(ctx, named, take)
	switch {
	case err != nil:
		if r.Holder == "" && (ctx.Err() != nil || isTimeout(err)) {
			c.abandon(take)
		}
		return nil, nil, err
	case !result.Allowed:
		if r.Holder == "" && isTimeout(result.Failure) {
			c.abandon(take)
		}
		return nil, result, nil
	}
	return c.newSlot(named, result, began), result, nil
}

func isTimeout(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// abandon frees what a take may have got whose answer is not awaited any more. It is for
// holders whose name no other request has: it might free what the next one with it took, so
// a slot of a caller's own Holder lapses instead.
func (c *Client) abandon(take []byte) {
	c.inBackground(func() { _ = c.pool.Release(context.Background(), take) })
}

// inBackground calls f in a goroutine that Close waits for. It reports false if the client is
// closed.
func (c *Client) inBackground(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.running.Go(f)
	return true
}

// tryInTurn asks, and returns a slot, or how long to pause before asking again.
func (c *Client) tryInTurn(ctx context.Context, r *Request, tries int) (*Slot, time.Duration, error) {
	s, result, err := c.tryAcquire(ctx, r)
	if s != nil || err != nil {
		return s, 0, err
	}
	switch after := result.RetryAfter; {
	case after == Never:
		return nil, 0, ErrNever
	case after == RetryUnknown:
		return nil, result.pause(tries), nil
	case after == 0:
		return nil, 0, fmt.Errorf("%w: %w", ErrDenied, result.Failure)
	default:
		if end, ok := ctx.Deadline(); ok && time.Until(end) < after {
			return nil, 0, ErrTooLate
		}
		return nil, after + time.Duration(mathrand.Float64()*float64(after)/4), nil
	}
}

// Pauses between requests for a slot that is free when someone releases it.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// pause returns how long to wait until the next try: half of a time that doubles with each
// one, and up to as much more at random. A slot that lapses is not waited for longer than
// necessary.
func (r *Result) pause(tries int) time.Duration {
	longest := min(firstPause<<min(tries, 7), lastPause)
	if l := r.Denier(); l != nil && l.FreeAtLatest > 0 {
		longest = max(firstPause, min(longest, 2*l.FreeAtLatest))
	}
	return longest/2 + time.Duration(mathrand.Float64()*float64(longest)/2)
}

// pauseFor waits for a pause, or until this process has released a slot that the queue is
// for.
func (c *Client) pauseFor(ctx context.Context, q *queue, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-q.freed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
	return nil
}

// queues are those in which requests of this process wait for slots.
type queues struct {
	mu    sync.Mutex
	byKey map[string]*queue
}

// queue is one for the slots of equal descriptors.
type queue struct {
	key string
	// count is how many wait, under the mutex of the queues.
	count int
	// turn has a value when no one asks. Those who wait for it get it in their order.
	turn chan struct{}
	// freed gets a value when this process releases a slot.
	freed chan struct{}
}

// slotsKey returns what requests for the same slots have in common.
func (r *Request) slotsKey() string {
	same := *r
	same.Holder = ""
	return string(appendTake(nil, &same, false))
}

// enter adds someone to a queue, and reports whether he is the first.
func (q *queues) enter(key string) (_ *queue, isFirst bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byKey[key]
	if of == nil {
		of = &queue{key: key, turn: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
		of.turn <- struct{}{}
		if q.byKey == nil {
			q.byKey = make(map[string]*queue)
		}
		q.byKey[key] = of
	}
	of.count++
	return of, of.count == 1
}

func (q *queues) leave(of *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of.count--; of.count == 0 {
		delete(q.byKey, of.key)
	}
}

// wake lets the first of a queue ask at once.
func (q *queues) wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.byKey[key]; of != nil {
		select {
		case of.freed <- struct{}{}:
		default:
		}
	}
}
