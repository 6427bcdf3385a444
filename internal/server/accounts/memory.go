package accounts

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory bounds what all callers together make the process hold. Each
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
type Memory struct {
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
	accounts map[*Account]struct{}
}

const (
	// callCost is what an open call holds: a stream of HTTP/2, its headers, a
	// goroutine's stack, and what is read and decided of a small request.
	callCost = 16 << 10
	// blamed is what a connection holds at least, for each call that it finished
	// lately, if it is to be closed.
	blamed = 32 << 10
	// StreamsMost is what the TakeStreams of a connection hold at most.
	StreamsMost = 64 << 20
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

func New(budget int64, onCut func()) *Memory {
	return &Memory{budget: budget, wake: make(chan struct{}, 1), onCut: onCut, accounts: make(map[*Account]struct{})}
}

// Open opens the account of a connection.
func (m *Memory) Open(cost int64, cut func()) *Account {
	a := &Account{memory: m, cut: cut, idle: cost}
	m.mu.Lock()
	m.accounts[a] = struct{}{}
	m.mu.Unlock()
	a.Add(cost)
	return a
}

// pressIfOver is called when so many bytes more are held.
func (m *Memory) pressIfOver(bytes int64) {
	if bytes > 0 && m.isOver() {
		m.press()
	}
}

func (m *Memory) press() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run looks after the memory until the context ends.
func (m *Memory) Run(ctx context.Context) {
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
func (m *Memory) age() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.accounts))
	m.mu.Unlock()
	for _, a := range all {
		a.look()
	}
}

// Held is how many bytes are charged in all.
func (m *Memory) Held() int64 { return m.held.Load() }

// isOver reports whether more is held than may be.
func (m *Memory) isOver() bool { return m.held.Load() > m.budget }

// shed closes connections until the budget is kept by those that are left, or
// none is to blame.
func (m *Memory) shed() {
	for m.held.Load()-m.leaving.Load() > m.budget {
		worst := m.worst()
		if worst == nil {
			return
		}
		worst.Close()
		worst.cut()
		m.onCut()
	}
}

// worst returns the account that holds the most for what it finishes, else,
// where it is connections that take the memory, the one that has been without a
// call for the longest, or nil.
func (m *Memory) worst() *Account {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst, idle *Account
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
