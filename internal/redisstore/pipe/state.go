package pipe

import "sync/atomic"

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
