package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tenureLasts is how long a sign-in gives tenure, from when it began. Nobody
	// considers the daemon gone before registrationLives; the difference allows for
	// clocks that run at different speeds.
	tenureLasts = registrationLives - time.Second
	// regainEvery is the pause between tries to regain a lost tenure.
	regainEvery = 100 * time.Millisecond
)

// Tenure is the time in which everyone who changes what daemons follow certainly waits
// for this one. Outside of it a change may have been made that the daemon does not know,
// and that its maker takes for done: what the daemon would decide is uncertain.
//
// A sign-in gives tenure from when it began, for a second less than others take to
// consider the daemon gone. A daemon that signs in while it has tenure keeps it. One that
// has lost it signs in, so that it is waited for from then on, and then catches up with
// all changes made before: only then does its tenure begin again.
//
// The nil Tenure always holds. Its methods may be called concurrently.
type Tenure struct {
	members *Membership
	wake    chan struct{} // has an element when run should regain it

	// span is the most recent tenure; nil if it was lost.
	span atomic.Pointer[span]
	lost atomic.Uint64

	mu sync.Mutex
	// present numbers the period in which the daemon has been in the register without a
	// gap, and signedIn is the beginning of the last sign-in.
	present  uint64
	signedIn time.Time
	// catchUp returns once the daemon follows all changes made before it was called; nil
	// if there is nothing to follow.
	catchUp func(context.Context) error
	// ended is closed at the end of the next or current try.
	ended chan struct{}
	// failure is why the last try failed, or nil.
	failure error
}

// span is a tenure.
type span struct {
	number uint64
	// signedIn is when its last sign-in began, and wall the same by the wall clock, in
	// nanoseconds since the Unix epoch.
	signedIn time.Time
	wall     int64
}

func newSpan(number uint64, signedIn time.Time) *span {
	return &span{number: number, signedIn: signedIn, wall: signedIn.UnixNano()}
}

func (t *Tenure) init(m *Membership) {
	t.members, t.wake, t.ended = m, make(chan struct{}, 1), make(chan struct{})
}

// OnRegain sets what the daemon must do after a sign-in before its tenure begins: catch
// up with all changes made before. It is called before Run.
func (t *Tenure) OnRegain(catchUp func(context.Context) error) { t.catchUp = catchUp }

// holds reports whether the span holds at a given time. If the monotonic clock stood
// still, as on a suspended machine, the wall clock may have gone on.
func (s *span) holds(now time.Time) bool {
	return now.Sub(s.signedIn) < tenureLasts && time.Duration(now.UnixNano()-s.wall) < tenureLasts
}

// At returns the number of the tenure at a time of the monotonic clock; false if the
// daemon had none.
func (t *Tenure) At(now time.Time) (number uint64, ok bool) {
	if t == nil {
		return 0, true
	}
	s := t.span.Load()
	if s == nil || now.Sub(s.signedIn) >= tenureLasts {
		return 0, false
	}
	return s.number, true
}

// StillHolds reports whether the tenure with a number still holds.
func (t *Tenure) StillHolds(number uint64) bool {
	if t == nil {
		return true
	}
	s := t.span.Load()
	return s != nil && s.number == number && s.holds(t.members.clock())
}

// Holds reports whether the daemon has tenure.
func (t *Tenure) Holds() bool {
	if t == nil {
		return true
	}
	s := t.span.Load()
	return s != nil && s.holds(t.members.clock())
}

// Void ends the tenure at once: the clocks by which it is measured are in doubt.
func (t *Tenure) Void() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.present++
	t.lose()
}

// lose ends the tenure. t.mu is held.
func (t *Tenure) lose() {
	if t.span.Swap(nil) != nil {
		t.lost.Add(1)
	}
}

// Losses returns how often the tenure was lost.
func (t *Tenure) Losses() uint64 { return t.lost.Load() }

// extend notes a sign-in that put the daemon into the register.
func (t *Tenure) extend(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := newSpan(0, t.signedIn)
	if !before.holds(t.members.clock()) {
		t.present++
		t.lose()
	}
	t.signedIn = began
	if s := t.span.Load(); s != nil {
		t.span.Store(newSpan(s.number, began))
	}
}

// Regain returns nil once the daemon has tenure. It fails when ctx ends, and while tries
// fail it fails at once with the reason. It needs Run to run.
func (t *Tenure) Regain(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	if t.Holds() {
		t.mu.Unlock()
		return nil
	}
	t.lose()
	ended, failure := t.ended, t.failure
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	if failure != nil {
		return failure
	}
	select {
	case <-ctx.Done():
		return errors.Join(ErrNoTenure, ctx.Err())
	case <-ended:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// ErrNoTenure is in the errors of Regain.
var ErrNoTenure = errors.New("redis: changes of assignments may have been missed")

// wakeIfLost makes run regain the tenure if there is none.
func (t *Tenure) wakeIfLost() {
	if !t.Holds() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run regains the tenure when woken, until ctx ends.
func (t *Tenure) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		err := t.try(ctx)
		t.mu.Lock()
		t.failure = err
		close(t.ended)
		t.ended = make(chan struct{})
		t.mu.Unlock()
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(regainEvery):
		}
	}
}

// try regains the tenure if there is none.
func (t *Tenure) try(ctx context.Context) error {
	if t.Holds() {
		return nil
	}
	t.mu.Lock()
	t.lose()
	t.mu.Unlock()
	if err := t.members.SignIn(ctx); err != nil {
		return errors.Join(ErrNoTenure, err)
	}
	t.mu.Lock()
	present := t.present
	t.mu.Unlock()
	if t.catchUp != nil {
		if err := t.catchUp(ctx); err != nil {
			return errors.Join(ErrNoTenure, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := newSpan(t.present, t.signedIn)
	if t.present != present || !s.holds(t.members.clock()) {
		return ErrNoTenure
	}
	t.span.Store(s)
	return nil
}
