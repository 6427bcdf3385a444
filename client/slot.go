package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// ErrSlotLost says that a slot was lost while it was used: no renewal was answered within the
// hold, or others have all slots.
var ErrSlotLost = errors.New("client: the slot is lost")

var (
	errTaken   = fmt.Errorf("%w: its hold had ended, and others have all slots", ErrSlotLost)
	errNoStore = errors.New("the daemon's store does not answer")
)

// Slot is what Acquire got: the slots of a request, held until Release. The client renews
// them about three times in a hold, at another daemon if one does not answer. If the process
// dies, or reaches no daemon for as long as the hold, they lapse, and others get them.
// Its methods may be called concurrently.
//
// What people want to say with it, and how:
//
//   - at most so many jobs at once over all machines, each waiting its turn: Do;
//   - a request that is refused at once where all slots are taken: TryAcquire, or the
//     InFlight of a middleware;
//   - only one of these at a time, and it must stop if that is not sure: Do, whose context
//     then ends;
//   - until the end of a function: Acquire, and a deferred Release;
//   - the same job goes on after a crash: the job's ID as the Holder.
//
// How it goes wrong, and what then happens:
//
//   - Release is forgotten: the slot is renewed until the client is closed or the process
//     ends. Do cannot forget it.
//   - The context of Acquire is that of the work, with a short deadline, or that of the work
//     ends before Release: neither matters to the slot.
//   - One Holder for several requests: they share one slot, and nothing is limited. Leave it
//     empty.
//   - The work goes on although the slot is lost: more run than may. Watch Lost, or the
//     context of Do or Context.
//   - No limit of requests in flight is for the descriptors, by a misspelt key: it passes,
//     as everything without a rule does, and IsHeld is false.
type Slot struct {
	client *Client
	result *Result
	queue  string
	// onFailure is the choice for the time in which no daemon can be reached.
	onFailure Failure
	release   sync.Once
	releasing context.CancelFunc
	kept      chan struct{} // closed when keep has ended
	lost      chan struct{}

	// keep owns these until kept is closed.
	request []byte        // the TakeRequest of its renewals
	hold    time.Duration // 0 as long as it never had a slot
	until   time.Time     // until when it surely has its slots, as far as it knows

	mu       sync.Mutex
	isHeld   bool
	degraded bool
	err      error
}

// newSlot returns the slot of an allowed take that began at a moment.
func (c *Client) newSlot(r *Request, result *Result, began time.Time) *Slot {
	s := &Slot{
		client: c, result: result, queue: r.slotsKey(), onFailure: r.OnFailure.or(c.options.failure),
		kept: make(chan struct{}), lost: make(chan struct{}),
	}
	s.degraded = result.Degraded
	if s.request = r.holding(result); s.request == nil {
		s.releasing = func() {}
		close(s.kept) // there is nothing to keep
		return s
	}
	s.renewed(result, began)
	ctx, cancel := context.WithCancel(c.ctx)
	s.releasing = cancel
	if !c.inBackground(func() { s.keep(ctx) }) {
		s.lose(ErrClosed)
		close(s.kept)
	}
	return s
}

// holding returns the take that renews the slots of a request; nil if it has none to renew.
// Where no store was asked, those may be to have that a descriptor with a HolderKey is for.
func (r *Request) holding(result *Result) []byte {
	only := Request{Domain: r.Domain, Holder: r.Holder}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		if result.holds(i) || result.Degraded && d.HolderKey != "" && !d.Peek {
			only.Descriptors = append(only.Descriptors, Descriptor{Entries: d.Entries, HolderKey: d.HolderKey})
		}
	}
	if only.Descriptors == nil {
		return nil
	}
	return appendTake(nil, &only, true)
}

// holds reports whether a slot was got for a descriptor.
func (r *Result) holds(descriptor int) bool {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Descriptor == descriptor && l.HeldFor > 0 {
			return true
		}
	}
	return false
}

// heldFor returns the shortest hold, 0 if there is none.
func (r *Result) heldFor() (shortest time.Duration) {
	for i := range r.Limits {
		if h := r.Limits[i].HeldFor; h > 0 && (shortest == 0 || h < shortest) {
			shortest = h
		}
	}
	return shortest
}

// Result is the answer by which the slot was got.
func (s *Slot) Result() *Result { return s.result }

// IsHeld reports whether there is a slot. There is none where no limit of requests in flight
// is for the descriptors, and none yet where the client's failure choice let the request
// pass; then the client goes on asking for one.
func (s *Slot) IsHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isHeld
}

// Degraded reports whether it is not sure that the slot is counted: the last answer about it
// was made without the state that all daemons share, or none came for as long as the hold
// and the failure choice is FailAllow or FailLocal.
func (s *Slot) Degraded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.degraded
}

// Lost is closed when the slot is lost. Its holder should stop, and release it.
func (s *Slot) Lost() <-chan struct{} { return s.lost }

// Err returns nil until the slot is lost, and then why: an ErrSlotLost, or ErrClosed.
func (s *Slot) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Context returns a context that ends with the parent, and when the slot is lost; then its
// cause is that of Err. Call cancel once it is not needed.
func (s *Slot) Context(parent context.Context) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	go func() {
		select {
		case <-s.lost:
			end(s.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(context.Canceled) }
}

// Release frees the slot. It may be called again, and after it was lost: then it frees what
// is left, or nothing. It waits for the answer, and before for that to a renewal under way,
// no longer than the client's timeout each, whatever context has ended; a slot whose release
// is lost lapses by itself, and Stats counts it.
func (s *Slot) Release() {
	s.release.Do(func() {
		s.releasing()
		<-s.kept
		if s.client.ctx.Err() == nil {
			s.free()
		}
		s.mu.Lock()
		s.isHeld = false
		s.mu.Unlock()
		s.client.queues.wake(s.queue)
	})
}

// free has the daemon free the slot.
func (s *Slot) free() {
	// A daemon whose answer was late may have taken it all the same.
	if s.hold <= 0 && !isTimeout(s.result.Failure) {
		return
	}
	if err := s.client.pool.Release(context.Background(), s.request); err != nil {
		s.client.stats.lostReleases.Add(1)
	}
}

// keep renews the slot until ctx ends or it is lost.
func (s *Slot) keep(ctx context.Context) {
	defer close(s.kept)
	timer := time.NewTimer(s.nextRenewal())
	defer timer.Stop()
	for tries := 0; ; {
		select {
		case <-ctx.Done():
			if s.client.ctx.Err() != nil {
				s.lose(ErrClosed)
				s.free()
			}
			return
		case <-timer.C:
		}
		isKnown, isOver := s.renew()
		switch {
		case isOver:
			return
		case isKnown:
			tries = 0
			timer.Reset(s.nextRenewal())
		default:
			tries++
			timer.Reset(s.nextTry(tries))
		}
	}
}

// nextRenewal returns how long it is until the slot is to be renewed: a quarter to a third of
// the hold. Sooner renewals would look like several requests with one holder.
func (s *Slot) nextRenewal() time.Duration {
	const unknown = 15 * time.Second // where there is no slot yet
	hold := cmp.Or(s.hold, unknown)
	return hold/4 + time.Duration(mathrand.Float64()*float64(hold/3-hold/4))
}

// nextTry returns how long it is until a renewal without an answer is tried again.
func (s *Slot) nextTry(tries int) time.Duration {
	longest := firstPause << min(tries, 10)
	if s.hold > 0 {
		longest = min(longest, s.hold/4)
	}
	if left := time.Until(s.until); left > 0 { // it is noticed at once when that is over
		longest = min(longest, left+time.Millisecond)
	}
	return longest/2 + time.Duration(mathrand.Float64()*float64(longest)/2)
}

// renew takes once more, for the slots alone. It reports whether it got an answer that
// counts, and whether the slot needs no more renewals, since it is lost, or no limit is for
// it any more. It goes on when the slot is released, since a release must not overtake it.
func (s *Slot) renew() (isKnown, isOver bool) {
	k := stream.NewTake()
	k.Request = s.request
	began := time.Now()
	result := new(Result)
	asking, cancel := s.whileSure(s.client.ctx)
	defer cancel()
	err := s.client.pool.Ask(asking, k)
	if err == nil {
		err = stream.Unreadable(result.read(k.Answer))
	}
	if err == nil && result.Degraded {
		err = errNoStore
	}
	switch {
	case s.client.ctx.Err() != nil:
		return false, false // keep finds out
	case err != nil:
		return false, s.unanswered(err)
	case result.Allowed:
		s.renewed(result, began)
		return true, result.heldFor() == 0
	case s.hold == 0: // it was let through without one
		return true, false
	}
	s.lose(errTaken)
	return true, true
}

// whileSure returns a context for a request, which ends when the slot may be lost.
func (s *Slot) whileSure(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.hold == 0 || !time.Now().Before(s.until) {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, s.until)
}

// unanswered notes that no one says whether the slot is still held, and reports whether that
// makes it lost, by the failure choice: after the time for which it was surely held.
func (s *Slot) unanswered(cause error) (isLost bool) {
	if s.hold == 0 || time.Now().Before(s.until) {
		return false
	}
	switch s.onFailure.mode {
	case bucket.FailAllow, bucket.FailLocal:
		s.mu.Lock()
		s.degraded = true
		s.mu.Unlock()
		return false
	}
	s.lose(fmt.Errorf("%w: %w", ErrSlotLost, cause))
	return true
}

// renewed notes the answer to a take or a renewal that began at a moment.
func (s *Slot) renewed(result *Result, began time.Time) {
	hold := result.heldFor()
	if hold > 0 {
		s.hold, s.until = hold, began.Add(hold)
	}
	s.mu.Lock()
	s.isHeld, s.degraded = hold > 0 || s.hold > 0 && result.Degraded, result.Degraded
	s.mu.Unlock()
}

// lose informs the holder that the slot is lost.
func (s *Slot) lose(cause error) {
	s.mu.Lock()
	s.isHeld, s.err = false, cause
	s.mu.Unlock()
	close(s.lost)
}
