package client

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// ErrSlotLost says that a slot was lost while it was used: its hold ended because no daemon
// could be reached for so long and others have it now, or somebody released or reset it.
var ErrSlotLost = errors.New("client: the slot is lost")

var (
	errTaken   = fmt.Errorf("%w: its hold had ended, and others have all slots", ErrSlotLost)
	errNoStore = errors.New("the daemon's store does not answer")
)

// Slot is what Acquire got: the slots of a request, held until Release. The daemon renews
// them over the client's stream; where that does not get through, when it ends, or when the
// daemon is restarted, the client renews them itself, at another daemon if there is one.
// Its methods may be called concurrently.
//
// What people want to say with it, and how:
//
//   - at most so many jobs at once over all machines, each waiting its turn: Do;
//   - a request that is refused at once where all slots are taken: TryAcquire, or the
//     InFlight of a middleware;
//   - only one of these at a time, and it must stop if that is not sure: Do, whose context
//     then ends;
//   - as long as this connection lasts: Acquire, and a deferred Release;
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
	request []byte // the TakeRequest of its renewals
	look    []byte // the same, which takes nothing
	binding *stream.Binding
	hold    time.Duration // 0 as long as it never had a slot
	until   time.Time     // until when it surely has its slots, as far as it knows

	mu       sync.Mutex
	isHeld   bool
	degraded bool
	err      error
}

// newSlot returns the slot of an allowed take that began at a moment.
func (c *Client) newSlot(r *Request, result *Result, binding *stream.Binding, began time.Time) *Slot {
	s := &Slot{
		client: c, result: result, queue: r.slotsKey(), onFailure: r.OnFailure.or(c.options.failure),
		binding: binding, kept: make(chan struct{}), lost: make(chan struct{}),
	}
	s.degraded = result.Degraded
	if s.request, s.look = r.holding(result); s.request == nil {
		binding.Forget()
		s.releasing = func() {}
		close(s.kept) // there is nothing to keep
		return s
	}
	s.renewed(result, began)
	if s.hold == 0 { // no daemon answered, or none could ask its store
		binding.Forget()
	}
	ctx, cancel := context.WithCancel(c.ctx)
	s.releasing = cancel
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		s.lose(ErrClosed)
		close(s.kept)
		return s
	}
	c.slots.Go(func() { s.keep(ctx) })
	return s
}

// holding returns the take that renews the slots of a request, and the same with costs of
// 0; nil if it has none to renew. Where no store was asked, those may be to have that a
// descriptor with a HolderKey is for.
func (r *Request) holding(result *Result) (request, look []byte) {
	only := Request{Domain: r.Domain, Holder: r.Holder}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		if result.holds(i) || result.Degraded && d.HolderKey != "" && !d.Peek {
			only.Descriptors = append(only.Descriptors, Descriptor{Entries: d.Entries, HolderKey: d.HolderKey})
		}
	}
	if only.Descriptors == nil {
		return nil, nil
	}
	request = appendTake(nil, &only, true)
	for i := range only.Descriptors {
		only.Descriptors[i].Peek = true
	}
	return request, appendTake(nil, &only, true)
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

// Lost is closed when the slot is lost. Whoever holds it should stop, and release it.
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
// is left, or nothing. It waits for the answer no longer than the client's timeout, whatever
// context has ended; a slot whose release is lost lapses by itself, and Stats counts it.
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
	if s.hold <= 0 {
		return
	}
	if err := s.client.pool.Release(context.Background(), s.request, s.binding); err != nil {
		s.client.stats.lostReleases.Add(1)
	}
}

// keep has the slot renewed until ctx ends or it is lost.
func (s *Slot) keep(ctx context.Context) {
	defer close(s.kept)
	timer := time.NewTimer(s.nextRenewal())
	defer timer.Stop()
	for tries := 0; ; {
		var ended <-chan struct{}
		if s.binding != nil {
			ended = s.binding.Ended()
		}
		select {
		case <-ctx.Done():
			if s.client.ctx.Err() != nil {
				s.lose(ErrClosed)
				s.free()
			}
			return
		case <-ended:
			if s.binding.IsLost() {
				s.lose(ErrSlotLost)
				return
			}
			tries = 0
			s.binding = nil
		case <-timer.C:
		}
		ask := s.renew
		if s.isBound() {
			ask = s.lookAt
		}
		isKnown, isOver := ask(ctx)
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

// isBound reports whether a stream renews the slot.
func (s *Slot) isBound() bool { return s.hold > 0 && s.binding != nil && s.binding.IsBound() }

// nextRenewal returns how long it is until the slot is to be renewed: about a third of the
// hold. If a stream does it, it is how long until that stream is to show that it still can.
func (s *Slot) nextRenewal() time.Duration {
	const (
		ofBound  = 5
		unknown  = 5 * time.Second // where there is no slot yet
		ofHold   = 3
		ofRandom = 4
	)
	pause := unknown
	switch {
	case s.isBound():
		pause = max(s.hold/ofBound, firstPause)
	case s.hold > 0:
		pause = s.hold / ofHold
	}
	return pause - pause/(2*ofRandom) + time.Duration(mathrand.Float64()*float64(pause)/ofRandom)
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

// lookAt looks at the slot on the stream that keeps it. A daemon that hangs, or is cut off
// from its callers or from its store, renews nothing and says nothing: others get the slot
// once its hold has ended, and gRPC may notice later than that, or not at all.
func (s *Slot) lookAt(ctx context.Context) (isKnown, isOver bool) {
	k := stream.NewTake()
	k.Request = s.look
	began := time.Now()
	result := new(Result)
	asking, cancel := s.whileSure(ctx)
	defer cancel()
	err := s.client.pool.AskOn(asking, s.binding, k)
	if err == nil {
		err = stream.Unreadable(result.read(k.Answer))
	}
	switch {
	case ctx.Err() != nil:
		return false, false // keep finds out
	case err != nil:
		return false, s.unanswered(err)
	case result.Degraded:
		return false, s.unanswered(errNoStore)
	case !result.Allowed:
		s.lose(errTaken)
		return true, true
	}
	// Such a daemon has renewed it within little more than a third of the hold.
	if until := began.Add(s.hold * 3 / 5); until.After(s.until) {
		s.until = until
	}
	s.mu.Lock()
	s.degraded = false
	s.mu.Unlock()
	return true, false
}

// renew takes once more, for the slots alone. It reports whether it got an answer that
// counts, and whether the slot needs no more renewals, since it is lost, or no limit is for
// it any more.
func (s *Slot) renew(ctx context.Context) (isKnown, isOver bool) {
	k := stream.NewTake()
	k.Request, k.Binding, k.IsRenewal = s.request, stream.NewBinding(), true
	began := time.Now()
	result := new(Result)
	asking, cancel := s.whileSure(ctx)
	defer cancel()
	err := s.client.ask(asking, k)
	if err == nil {
		err = stream.Unreadable(result.read(k.Answer))
	}
	if ctx.Err() != nil {
		return false, false // keep finds out
	}
	s.binding = nil
	if err != nil {
		return false, s.unanswered(err)
	}
	if result.Allowed {
		s.renewed(result, began)
		if result.heldFor() > 0 {
			s.binding = k.Binding
			return true, false
		}
	}
	k.Binding.Forget()
	switch {
	case result.Allowed:
		return false, !result.Degraded // no limit is for it any more
	case result.Degraded:
		return false, s.unanswered(errNoStore)
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

// unanswered notes that nobody says whether the slot is still held, and reports whether that
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

// lose tells the holder that the slot is lost.
func (s *Slot) lose(cause error) {
	s.mu.Lock()
	s.isHeld, s.err = false, cause
	s.mu.Unlock()
	close(s.lost)
}
