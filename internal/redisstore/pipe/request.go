package pipe

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// State says where a request is. It only goes on, and never back.
type State uint32

// The states.
const (
	Waiting   State = iota // its caller has it, or the queue of a node
	Sent                   // only Redis knows its outcome
	Decided                // by Redis
	Failed                 // it was refused, or its command failed or found an unreadable state
	Left                   // its caller left before it was sent
	Abandoned              // its caller left after it was sent
	Dropped                // it was abandoned, and its caller wants nothing of it
	Returned               // it was abandoned, and then its batch came back
)

// state is the State of a request, for several goroutines.
type state struct{ value atomic.Uint32 }

// State returns where the request is.
func (s *state) State() State { return State(s.value.Load()) }

// move changes one state to another, and reports false if it was not the first.
func (s *state) move(from, to State) bool { return s.value.CompareAndSwap(uint32(from), uint32(to)) }

// IsGone reports whether the caller has left the request: it belongs to its queue or its
// batch for good.
func (s *state) IsGone() bool { return s.State() >= Left }

// IsLate reports whether the caller left the request after it was sent.
func (s *state) IsLate() bool { return s.State() >= Abandoned }

// Drop says that the caller of a late request wants nothing of what it may take. It
// reports whether its batch is back; if not, Options.OnLate gets the request then.
func (s *state) Drop() (isBack bool) { return !s.move(Abandoned, Dropped) }

// Request is a group on its way to Redis and back. Its memory belongs to the pipe from
// Send until Wait returns, and for good if it IsGone then: a batch may still read the
// group, except for the places of its hits, and write its decisions and Err.
type Request struct {
	script.Group
	state
	// Tag is the number of the hash tag of all keys.
	Tag int
	// Cause is why Redis did not decide, once Wait has returned.
	Cause error
	// Trip receives the times of a traced request; nil if it is not traced.
	Trip *Trip

	ctx      context.Context // the caller's
	deadline time.Time       // of the wait
	done     chan error      // gets nil or the cause when the wait is over
}

// Trip is the way of a traced request to Redis and back. If the request is late, only
// Queued and Sent may be read, if it left only Queued, and Sent is zero if it was refused.
type Trip struct {
	Queued, Sent, Back time.Time
	Batch              bucket.SpanRef
}

// NewRequest returns a request without hits.
func NewRequest() *Request { return &Request{done: make(chan error, 1)} }

// Reset makes a request that is not gone like new, and keeps its memory.
func (r *Request) Reset() {
	clear(r.Hits)
	r.Group = script.Group{Hits: r.Hits[:0], Hashes: r.Hashes[:0], Decisions: r.Decisions[:0]}
	r.Tag, r.Cause, r.Trip, r.ctx = 0, nil, nil, nil
	r.value.Store(uint32(Waiting))
}

// Fail makes a request that was not sent a failed one. It need not be waited for.
func (r *Request) Fail(cause error) {
	r.value.Store(uint32(Failed))
	r.Cause = cause
}

// refuse is Fail for a request that is waited for.
func (r *Request) refuse(cause error) {
	r.value.Store(uint32(Failed))
	r.done <- cause
}

// depart reports whether the request goes with a batch that is about to be sent. It
// does not if its caller disconnected.
func (r *Request) depart() bool {
	if err := r.ctx.Err(); err != nil {
		r.leave(err)
		return false
	}
	if r.Trip != nil {
		r.Trip.Sent = time.Now()
	}
	return r.move(Waiting, Sent)
}

// arrive ends the wait for a request whose command has ended. It reports false if its
// caller has left.
func (r *Request) arrive() bool {
	to := Decided
	if r.Err != nil {
		to = Failed
	}
	if !r.move(Sent, to) {
		return false
	}
	r.done <- r.Err
	return true
}

// leave ends the wait for a request that has not arrived.
func (r *Request) leave(cause error) {
	if r.move(Waiting, Left) || r.move(Sent, Abandoned) {
		r.done <- cause
	}
}

// expire ends the wait if the caller disconnected, or has no more time left than slack.
func (r *Request) expire(now time.Time, slack time.Duration) {
	if err := r.ctx.Err(); err != nil {
		r.leave(err)
	} else if r.deadline.Sub(now) <= slack {
		r.leave(ErrNoAnswer)
	}
}

// wait waits until the wait is over. now is the time, or that of a moment ago.
func (r *Request) wait(now time.Time) {
	if rest := r.deadline.Sub(now); rest < shortWait {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case r.Cause = <-r.done:
			return
		case <-t.C:
			r.leave(ErrNoAnswer)
		}
	}
	r.Cause = <-r.done
}

// shortWait is the wait below which the watch of a queue is too coarse, so the caller has
// a timer of its own.
const shortWait = 8 * time.Millisecond

// mayHaveRun reports whether a request whose wait is over may have been charged although
// Redis did not decide it.
func (r *Request) mayHaveRun() bool {
	if r.Mode == script.Check {
		return false
	}
	return r.IsLate() || r.State() == Failed && mayHaveRun(r.Cause)
}

// mayResend reports whether Redis said of a request that it did not run, and may decide it
// if it is sent again.
func (r *Request) mayResend() bool { return r.Err == errSlotMoves || r.Err == script.ErrElsewhen }
