package accounts

import (
	"sync"
	"sync/atomic"
)

// Account counts the bytes that a connection makes the process hold. A nil
// Account belongs to no connection and accepts any charge.
type Account struct {
	memory *Memory
	// cut closes the connection.
	cut func()
	// idle is what the connection holds without a call.
	idle int64

	mu   sync.Mutex
	held int64
	// closed is set when the connection ends, and left once nothing is held for it any
	// more.
	closed atomic.Bool
	left   bool
	// running counts handlers that have not ended. It is read without the lock.
	running atomic.Int64
	// streams is the part of held that TakeStreams hold.
	streams int64
	// deciding is the part of held that waits for the store, for which the caller
	// is not to blame. It is changed without the lock.
	deciding atomic.Int64
	// pending counts calls that are charged because they were read, and whose
	// handlers have not begun. stale is their number at the last look, since gRPC
	// refuses some calls before a handler sees them. unread counts the bytes that
	// have come for them.
	pending, stale, unread int64
	// finished counts calls since the last look. credit counts the earlier ones,
	// halved at each look.
	finished, credit int64
	used             bool
	quiet            int // looks since a call was finished, or since the end
}

// Close ends the account with its connection. Handlers that have not ended, and
// calls that have not begun, stay charged until they are done.
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

// update calls change with the lock, unless the account has left, and then lets
// the account leave if nothing is held for it.
func (a *Account) update(change func()) {
	if a.lock() {
		change()
		a.unlock()
	}
}

// lock takes the lock of an account that has not left. Otherwise it reports false.
func (a *Account) lock() bool {
	a.mu.Lock()
	if a.left {
		a.mu.Unlock()
		return false
	}
	return true
}

// unlock ends what lock began, and lets the account leave if nothing is held for it.
func (a *Account) unlock() {
	if !a.closed.Load() {
		a.mu.Unlock()
		return
	}
	left := a.running.Load() == 0 && a.pending == 0 || a.quiet >= leavesAfter
	if left {
		a.left = true
		a.shift(-a.held)
	}
	a.mu.Unlock()
	if left {
		a.memory.mu.Lock()
		delete(a.memory.accounts, a)
		a.memory.mu.Unlock()
	}
}

// shift adds bytes to what is held. The caller has the lock.
func (a *Account) shift(bytes int64) {
	a.held += bytes
	a.memory.held.Add(bytes)
	if a.closed.Load() {
		a.memory.leaving.Add(bytes)
	}
}

// Add charges bytes; negative bytes are given back.
func (a *Account) Add(bytes int64) {
	if a == nil {
		return
	}
	a.update(func() { a.shift(bytes) })
	a.memory.pressIfOver(bytes)
}

// open charges bytes and calls that were opened; unread bytes of requests wait
// for the handlers of these.
func (a *Account) open(bytes, calls, unread int64) {
	bytes += calls * callCost
	a.update(func() {
		a.pending += calls
		if a.pending > 0 { // otherwise it is read at once
			a.unread += unread
			bytes += unread
		}
		a.shift(bytes)
	})
	a.memory.pressIfOver(bytes)
}

// begin takes over the charge of a call whose handler begins. It returns the
// bytes of the charge, and whether the caller is still there.
func (a *Account) begin() (bytes int64, hasCaller bool) {
	bytes = callCost
	if !a.lock() {
		return bytes, false
	}
	defer a.unlock()
	hasCaller = !a.closed.Load()
	a.running.Add(1)
	if a.pending == 0 {
		a.shift(bytes)
		return bytes, hasCaller
	}
	if a.unread > 0 {
		// It is not known which bytes belong to this call, so it gets the mean.
		unread := a.unread / a.pending
		a.unread -= unread
		bytes += unread
	}
	a.pending--
	return bytes, hasCaller
}

// run notes a handler whose request is charged elsewhere.
func (a *Account) run() { a.running.Add(1) }

// ended notes that handlers have ended. Their answers may still be on their way;
// gRPC drops them when the connection ends.
func (a *Account) ended(handlers int64) {
	if a.running.Add(-handlers); a.closed.Load() {
		a.update(func() {})
	}
}

// look ages the account. It is called once in each ageEvery.
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

// finish gives back the bytes of an answered call, and notes that handlers have ended.
func (a *Account) finish(bytes, handlers int64) {
	if a == nil || !a.lock() {
		return
	}
	a.finished++
	a.used = true
	if handlers != 0 {
		a.running.Add(-handlers)
	}
	a.shift(-bytes)
	a.unlock()
}

// blame returns how many bytes the connection holds for each call that it
// finished lately; for how many looks it has been idle, or -1 if it is not idle;
// and the cost of the connection itself. A connection that never finished a call
// gets twice the blame after its first look, its own cost included. One that has
// finished calls is idle only after idleAfter looks.
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
		return 2 * (a.held - a.deciding.Load()), idleFor, a.idle
	}
	return (a.held - a.idle - a.deciding.Load()) / (1 + a.finished + a.credit), idleFor, a.idle
}
