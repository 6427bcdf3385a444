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
//   - the bytes of requests that have begun but not ended,
//   - what large requests become while they are decided,
//   - the bytes of answers that have not left.
//
// A request stays charged until its handler has ended, even if the caller has
// gone: until then the process holds it.
//
// When more than the budget is held, Memory closes the connections that hold the
// most for the calls that they finish, since callers that hold requests back or
// read no answers finish few. If no connection stands out, callers are held up,
// and then refused.
type Memory struct {
	budget int64
	held   atomic.Int64
	// leaving is the part of held that belongs to connections that have ended
	// before their handlers.
	leaving atomic.Int64
	// waiting counts requests that wait for room.
	waiting atomic.Int32
	// wake tells shed that the budget may be exceeded.
	wake chan struct{}
	// onCut is called for each connection that shed closes.
	onCut func()

	mu       sync.Mutex
	accounts map[*Account]struct{}
}

const (
	// callCost is what an open call holds: a stream of HTTP/2, its headers, a
	// goroutine's stack, and a small request with its hits.
	callCost = 16 << 10
	// blamed is how many bytes a connection must hold, for each call that it
	// finished lately, to be closed for it.
	blamed = 32 << 10
	// littleHeld is what a caller holds who sends a few tens of takes at a time.
	littleHeld = 256 << 10
	// MaxStreams bounds the bytes that the TakeStreams of a connection hold.
	MaxStreams = 64 << 20
	// waitsFor is how long a request waits for memory before it is refused.
	waitsFor = time.Second
	// maxWaiters is how many requests wait at a time. More are refused at once,
	// since they hold memory while they wait.
	maxWaiters = 512
	// ageEvery is how often accounts age.
	ageEvery = time.Second
	// idleAfter is the number of looks without a call after which a connection is
	// idle.
	idleAfter = 10
	// leavesAfter is the number of looks after which the calls of a connection that has
	// ended count as ended too; no handler runs for that long.
	leavesAfter = 60
)

// New returns a Memory with a budget in bytes. onCut is called for each
// connection that is closed to keep it.
func New(budget int64, onCut func()) *Memory {
	return &Memory{budget: budget, wake: make(chan struct{}, 1), onCut: onCut, accounts: make(map[*Account]struct{})}
}

// Open opens the account of a connection that costs this many bytes by itself; cut closes
// it.
func (m *Memory) Open(cost int64, cut func()) *Account {
	a := &Account{memory: m, cut: cut, idle: cost}
	m.mu.Lock()
	m.accounts[a] = struct{}{}
	m.mu.Unlock()
	a.Add(cost)
	return a
}

// pressIfOver wakes shed if bytes were added and the budget is exceeded.
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

// Run ages the accounts and keeps the budget until the context ends.
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

// age looks at each account.
func (m *Memory) age() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.accounts))
	m.mu.Unlock()
	for _, a := range all {
		a.look()
	}
}

// Add charges bytes that belong to no connection, for which no connection is to blame;
// negative bytes are given back.
func (m *Memory) Add(bytes int64) {
	m.held.Add(bytes)
	m.pressIfOver(bytes)
}

// Held is how many bytes are charged in all.
func (m *Memory) Held() int64 { return m.held.Load() }

// isOver reports whether more is held than may be.
func (m *Memory) isOver() bool { return m.held.Load() > m.budget }

// shed closes connections until the others keep the budget, or none is to blame.
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

// worst returns the account that holds the most for each call that it finishes.
// If none holds much and the connections by themselves take half of the budget, it
// returns the one that has been idle for the longest; otherwise nil.
func (m *Memory) worst() *Account {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst, idle *Account
	maxBytes, longest, connections := int64(blamed), -1, int64(0)
	for a := range m.accounts {
		bytes, idleFor, cost := a.blame()
		connections += cost
		if bytes >= maxBytes {
			worst, maxBytes = a, bytes
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
