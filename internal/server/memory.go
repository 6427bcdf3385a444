package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// memory bounds what all callers together make the process hold. Each
// connection has an account, to which the following is charged for as long as
// it is held, in bytes that are on the safe side of what was measured:
//
//   - the connection itself,
//   - each open call, from its first frame until its answer has left,
//   - the bytes of requests that have begun and not ended,
//   - what large requests become while they are decided,
//   - the bytes of answers that have not left.
//
// What a caller has asked for is held until its handlers have ended, also where
// the caller has gone before that, and so it stays charged.
//
// When all of it is more than the budget, the connections that hold the most
// for the calls that they finish are closed until it is not: callers who hold
// requests back, or read no answers, finish few. Where no connection stands
// out, callers are held up, and then refused.
type memory struct {
	budget int64
	held   atomic.Int64
	// leaving is how much of held is that of connections that have ended and whose
	// handlers have not.
	leaving atomic.Int64
	// waiting is how many wait for room.
	waiting atomic.Int32
	// wake tells shed that the budget may be exceeded.
	wake chan struct{}
	// onCut is told of each connection that is closed.
	onCut func()

	mu       sync.Mutex
	accounts map[*account]struct{}
}

const (
	// callCost is what an open call holds: a stream of HTTP/2, its headers, a
	// goroutine's stack, and what is read and decided of a small request.
	callCost = 16 << 10
	// blamed is what a connection holds at least, for each call that it finished
	// lately, if it is to be closed.
	blamed = 32 << 10
	// streamsMost is what the TakeStreams of a connection hold at most.
	streamsMost = 64 << 20
	// waitsFor is how long a request waits for memory before it is refused.
	waitsFor = time.Second
	// waitersMost is how many do at a time. More are refused at once, for they
	// hold memory as they wait.
	waitersMost = 512
	// ageEvery is how often it is counted what connections finished.
	ageEvery = time.Second
	// idleAfter is after how many of those a connection is idle that had no call.
	idleAfter = 10
	// leavesAfter is how many of those the calls of a connection have to end after
	// it: none goes on for so long after its caller has gone.
	leavesAfter = 60
)

func newMemory(budget int64, onCut func()) *memory {
	return &memory{budget: budget, wake: make(chan struct{}, 1), onCut: onCut, accounts: make(map[*account]struct{})}
}

// account is that of a connection. A nil one is of none, and takes all.
type account struct {
	memory *memory
	// cut closes the connection.
	cut func()
	// idle is what the connection holds without a call.
	idle int64

	mu   sync.Mutex
	held int64
	// closed is whether the connection has ended, and left whether all that it
	// held is gone with it.
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

// open opens the account of a connection.
func (m *memory) open(cost int64, cut func()) *account {
	a := &account{memory: m, cut: cut, idle: cost}
	m.mu.Lock()
	m.accounts[a] = struct{}{}
	m.mu.Unlock()
	a.add(cost)
	return a
}

// close is the end of the connection. What it held is gone with it, but for what
// handlers have that have not ended, and those of calls that are yet to begin.
func (a *account) close() {
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
func (a *account) update(change func()) {
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
func (a *account) shift(bytes int64) {
	a.held += bytes
	a.memory.held.Add(bytes)
	if a.closed.Load() {
		a.memory.leaving.Add(bytes)
	}
}

// add charges bytes, or gives them back where they are negative.
func (a *account) add(bytes int64) { a.change(bytes, 0) }

func (a *account) change(bytes, deciding int64) {
	if a == nil {
		return
	}
	a.update(func() {
		a.shift(bytes)
		a.deciding += deciding
	})
	if bytes > 0 && a.memory.isOver() {
		a.memory.press()
	}
}

// open charges bytes, and calls that have been opened, of which so many bytes
// have come that wait for their handlers.
func (a *account) open(bytes, calls, unread int64) {
	bytes += calls * callCost
	a.update(func() {
		a.pending += calls
		if a.pending > 0 { // else it is read at once
			a.unread += unread
			bytes += unread
		}
		a.shift(bytes)
	})
	if bytes > 0 && a.memory.isOver() {
		a.memory.press()
	}
}

// begin takes over the charge of a call whose handler begins, and returns what
// that is, and whether there still is a caller.
func (a *account) begin() (bytes int64, hasCaller bool) {
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
func (a *account) run() { a.running.Add(1) }

// ended is the end of so many handlers, whose answers may be on their way: gRPC
// forgets those when their connection ends.
func (a *account) ended(handlers int64) {
	if a.running.Add(-handlers); a.closed.Load() {
		a.update(func() {})
	}
}

// look is taken once every ageEvery.
func (a *account) look() {
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
func (a *account) finish(bytes, deciding, handlers int64) {
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

// reserve charges bytes once there is room for them. Its error is for the
// caller, who has waited for that long enough.
func (a *account) reserve(ctx context.Context, bytes int64) error {
	if a == nil {
		return nil
	}
	if a.closed.Load() {
		return errGone
	}
	if err := a.await(ctx, bytes); err != nil {
		return err
	}
	a.add(bytes)
	return nil
}

// errGone is for nobody to read.
var errGone = status.Error(codes.Canceled, "the caller has gone")

// await waits until there is room for bytes.
func (a *account) await(ctx context.Context, bytes int64) error {
	m := a.memory
	if m.held.Load()+bytes <= m.budget || a.mayExceed(bytes) {
		return nil
	}
	return m.waitFor(ctx, bytes)
}

// holdStream charges bytes of a TakeStream once there is room for them, beside
// those that the streams of the connection have in all. It waits as long as the
// context: the caller is held up.
func (a *account) holdStream(ctx context.Context, bytes int64) error {
	if a == nil {
		return nil
	}
	const look = 2 * time.Millisecond
	for !a.tryStream(bytes) {
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

// tryStream charges bytes of a TakeStream if there is room for them.
func (a *account) tryStream(bytes int64) bool {
	if a == nil {
		return true
	}
	if a.memory.held.Load()+bytes > a.memory.budget {
		a.memory.press()
		return false
	}
	isRoom := false
	a.update(func() {
		if isRoom = a.streams+bytes <= streamsMost; isRoom {
			a.streams += bytes
			a.shift(bytes)
		}
	})
	return isRoom
}

func (a *account) releaseStream(bytes int64) {
	if a == nil {
		return
	}
	a.update(func() {
		a.streams -= bytes
		a.finished++
		a.used = true
		a.shift(-bytes)
	})
}

// mayExceed reports whether the connection, which finishes what it asks, need
// not wait while there are others to blame. A quarter of the budget more is for
// those, and as much again for what they ask that is small.
func (a *account) mayExceed(bytes int64) bool {
	m := a.memory
	more := m.budget / 4
	if bytes <= callCost {
		more = m.budget
	}
	if m.held.Load()+bytes > m.budget+more {
		return false
	}
	m.press()
	return a.hasEarned(bytes)
}

// errMemory is the answer to a request for which there was no room.
var errMemory = status.Error(codes.ResourceExhausted, "the requests that are being read and answered take all the memory that they may (setting request_memory)")

func (m *memory) waitFor(ctx context.Context, bytes int64) error {
	if m.waiting.Add(1) > waitersMost {
		m.waiting.Add(-1)
		m.press()
		return errMemory
	}
	defer m.waiting.Add(-1)
	const look = 5 * time.Millisecond
	timer := time.NewTicker(look)
	defer timer.Stop()
	for end := time.Now().Add(waitsFor); time.Now().Before(end); {
		m.press()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if m.held.Load()+bytes <= m.budget {
			return nil
		}
	}
	return errMemory
}

// holdUp waits for a moment where there is no room, so that no more is read from
// the connection meanwhile, and longer where it may not go on.
func (a *account) holdUp() {
	const (
		most, look = 50 * time.Millisecond, time.Millisecond
		longest    = time.Second
	)
	m := a.memory
	if !m.isOver() {
		return
	}
	for began := time.Now(); m.isOver(); {
		if waited := time.Since(began); waited >= longest || waited >= most && a.mayGoOn() {
			return
		}
		m.press()
		time.Sleep(look)
	}
}

// mayGoOn reports whether the connection holds next to nothing, or what it has
// earned, and has few calls that wait for their turn.
func (a *account) mayGoOn() bool {
	const few = 32
	a.mu.Lock()
	holdsLittle, isBehind := a.held <= a.idle+callCost, a.pending > few
	a.mu.Unlock()
	return holdsLittle || !isBehind && a.hasEarned(0)
}

// readSize is how many of so many bytes to read, so that there is room for the
// calls that these may open.
func (a *account) readSize(size int) int {
	const (
		smallestCall = 16 // bytes: a frame of headers that are all known
		least        = 1 << 10
	)
	room := (a.memory.budget - a.memory.held.Load()) / callCost * smallestCall
	return int(min(int64(size), max(room, least)))
}

// hasEarned reports whether the connection would hold, with so many bytes more,
// no more than those may that finish as many calls.
func (a *account) hasEarned(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used && (a.held-a.idle-a.deciding+bytes)/(1+a.finished+a.credit) < blamed
}

func (m *memory) press() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run looks after the memory until the context ends.
func (m *memory) run(ctx context.Context) {
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.age()
		case <-m.wake:
		}
		m.shed()
	}
}

// age lets what connections finished count for less.
func (m *memory) age() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.accounts))
	m.mu.Unlock()
	for _, a := range all {
		a.look()
	}
}

// isOver reports whether more is held than may be.
func (m *memory) isOver() bool { return m.held.Load() > m.budget }

// shed closes connections until the budget is kept by those that are left, or
// none is to blame.
func (m *memory) shed() {
	for m.held.Load()-m.leaving.Load() > m.budget {
		worst := m.worst()
		if worst == nil {
			return
		}
		worst.close()
		worst.cut()
		m.onCut()
	}
}

// worst returns the account that holds the most for what it finishes, else,
// where it is connections that take the memory, the one that has been without a
// call for the longest, or nil.
func (m *memory) worst() *account {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst, idle *account
	most, longest, connections := int64(blamed), -1, int64(0)
	for a := range m.accounts {
		bytes, idleFor, cost := a.blame()
		connections += cost
		if bytes >= most {
			worst, most = a, bytes
		}
		if idleFor > longest {
			idle, longest = a, idleFor
		}
	}
	if worst == nil && connections > m.budget/2 {
		return idle
	}
	return worst
}

// blame is how many bytes the connection holds for each call that it finished
// lately, for how many looks it has been idle, or -1 if it is not, and what it
// costs by itself. One that has been there for a while and never finished a call
// is to blame twice, and for what it holds without one. One that had calls is idle
// after a while only.
func (a *account) blame() (bytes int64, idleFor int, cost int64) {
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
