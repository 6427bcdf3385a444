package accounts

import (
	"sync"
	"sync/atomic"
)

// Account is that of a connection. A nil one is of none, and takes all.
type Account struct {
	memory *Memory
	// cut closes the connection.
	cut func()
	// idle is what the connection holds without a call.
	idle int64

	mu   sync.Mutex
	held int64
	// closed is whether the connection has ended, and left whether all that it
	// Held is gone with it.
	closed atomic.Bool
	left   bool
	// running counts handlers that have not ended. The lock is not needed for it.
	running atomic.Int64
	// streams is how much of held is TakeStreams'.
	streams int64
	// deciding is how much of held waits for the store, which is not the
	// caller's fault.
	deciding int64
	// pending counts open calls whose handlers have not begun: they are charged
	// for as soon as they are read. stale is how many there were at the last
	// look: gRPC refuses some that no handler sees. unread are the bytes of theirs
	// that have come.
	pending, stale, unread int64
	// finished counts calls since the last look at them, and credit those of
	// before, fewer the longer ago.
	finished, credit int64
	used             bool
	quiet            int // looks since the last call was finished, or since the end
}

// Close is the end of the connection. What it held is gone with it, but for what
// handlers have that have not ended, and those of calls that are yet to begin.
func (a *Account) Close() {
	a.update(func() {
		if a.closed.Load() {
			return
		}
		a.closed.Store(true)
		a.quiet, a.stale = 0, 0
		a.memory.leaving.Add(a.held)
		a.shift(-min(a.idle, a.held))
	})
}

// update changes the account, unless all of it is gone, and forgets it where it
// is then.
func (a *Account) update(change func()) {
	a.mu.Lock()
	if a.left {
		a.mu.Unlock()
		return
	}
	change()
	a.left = a.closed.Load() && (a.running.Load() == 0 && a.pending == 0 || a.quiet >= leavesAfter)
	left := a.left
	if left {
		a.shift(-a.held)
	}
	a.mu.Unlock()
	if left {
		a.memory.mu.Lock()
		delete(a.memory.accounts, a)
		a.memory.mu.Unlock()
	}
}

// shift changes what is held. It is called with the lock.
func (a *Account) shift(bytes int64) {
	a.held += bytes
	a.memory.held.Add(bytes)
	if a.closed.Load() {
		a.memory.leaving.Add(bytes)
	}
}

// Add charges bytes, or gives them back where they are negative.
func (a *Account) Add(bytes int64) { a.change(bytes, 0) }

func (a *Account) change(bytes, deciding int64) {
	if a == nil {
		return
	}
	a.update(func() {
		a.shift(bytes)
		a.deciding += deciding
	})
	a.memory.pressIfOver(bytes)
}

// open charges bytes, and calls that have been opened, of which so many bytes
// have come that wait for their handlers.
func (a *Account) open(bytes, calls, unread int64) {
	bytes += calls * callCost
	a.update(func() {
		a.pending += calls
		if a.pending > 0 { // else it is read at once
			a.unread += unread
			bytes += unread
		}
		a.shift(bytes)
	})
	a.memory.pressIfOver(bytes)
}

// begin takes over the charge of a call whose handler begins, and returns what
// that is, and whether there still is a caller.
func (a *Account) begin() (bytes int64, hasCaller bool) {
	bytes = callCost
	a.update(func() {
		hasCaller = !a.closed.Load()
		a.running.Add(1)
		if a.pending == 0 {
			a.shift(bytes)
			return
		}
		// Which of them are this call's is not known.
		unread := a.unread / a.pending
		a.unread -= unread
		a.pending--
		bytes += unread
	})
	return bytes, hasCaller
}

// run notes that a handler begins that is charged for elsewhere.
func (a *Account) run() { a.running.Add(1) }

// ended is the end of so many handlers, whose answers may be on their way: gRPC
// forgets those when their connection ends.
func (a *Account) ended(handlers int64) {
	if a.running.Add(-handlers); a.closed.Load() {
		a.update(func() {})
	}
}

// look is taken once every ageEvery.
func (a *Account) look() {
	a.update(func() {
		if n := min(a.pending, a.stale); n > 0 {
			unread := a.unread / a.pending * n
			a.pending -= n
			a.unread -= unread
			a.shift(-n*callCost - unread)
		}
		a.stale = a.pending
		a.quiet++
		if a.finished > 0 {
			a.quiet = 0
		}
		a.credit, a.finished = a.credit/2+a.finished, 0
	})
}

// finish gives back the bytes of a call that has been answered, of which so many
// waited for the store, and ends so many handlers.
func (a *Account) finish(bytes, deciding, handlers int64) {
	if a == nil {
		return
	}
	a.update(func() {
		a.finished++
		a.used = true
		a.running.Add(-handlers)
		a.shift(-bytes)
		a.deciding -= deciding
	})
}

// blame is how many bytes the connection holds for each call that it finished
// lately, for how many looks it has been idle, or -1 if it is not, and what it
// costs by itself. One that has been there for a while and never finished a call
// is to blame twice, and for what it holds without one. One that had calls is idle
// after a while only.
func (a *Account) blame() (bytes int64, idleFor int, cost int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	idleFor = -1
	if a.closed.Load() {
		return 0, idleFor, 0
	}
	if a.held <= a.idle && (!a.used || a.quiet >= idleAfter) {
		idleFor = a.quiet
	}
	if !a.used && a.quiet > 0 {
		return 2 * (a.held - a.deciding), idleFor, a.idle
	}
	return (a.held - a.idle - a.deciding) / (1 + a.finished + a.credit), idleFor, a.idle
}
