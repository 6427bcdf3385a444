// Package overload closes the connections that make the process hold the most when it
// holds more than it may. It imports gRPC, and nothing of the daemon.
package overload

import (
	"cmp"
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callCost is what an open call holds, in bytes: a stream of HTTP/2, its headers, a
	// goroutine's stack, and a small request.
	callCost = 16 << 10
	// minBlame is how many bytes a connection must hold, for each call that it finished
	// lately, to be closed for it.
	minBlame = 32 << 10
	// littleHeld is what a caller holds who sends a few tens of takes at a time, and
	// littleBudgets how many budgets may be held when such callers are refused.
	littleHeld, littleBudgets = 256 << 10, 3
	// slowdown is how long each read waits from a connection that holds much, once a part
	// of the budget is held, slowFrom of which are a whole.
	slowdown, slowFrom = 50 * time.Millisecond, 4
	// checkEvery is how often the memory of the process is read, pace the time between
	// two rounds of closing, and calm the time after the last one until an overload has
	// ended.
	checkEvery, pace, calm = 100 * time.Millisecond, time.Millisecond, 2 * time.Second
	// idleAfter is the number of ageEvery without a call after which a connection is idle.
	ageEvery, idleAfter = time.Second, 10
)

// Guard bounds the bytes that connections have sent and that no call has finished, by a
// budget, and the memory of the process, by Go's limit. Beyond either it closes the
// connections that hold the most for the calls that they finish, since callers that hold
// requests back or read no answers finish few. What has no room is refused at once. Before
// that, connections that hold much are read slowly, so that handlers of what they send do
// not keep the processors from others.
type Guard struct {
	budget int64
	onCut  func()
	held   atomic.Int64
	// isFull is set while live memory is near the limit of the process.
	isFull atomic.Bool
	// shedding is held while connections are closed. It guards last, the time when that
	// ended, until memory was given back.
	shedding sync.Mutex
	last     time.Time

	mu    sync.Mutex
	conns map[*Conn]struct{}
	// leaving is the part of held that connections had sent that were closed, halved at
	// each age, since their handlers may not have run yet. It is a budget at most.
	leaving int64
}

// New returns a Guard with a budget in bytes. onCut is called for each connection that it
// closes.
func New(budget int64, onCut func()) *Guard {
	return &Guard{budget: budget, onCut: onCut, conns: make(map[*Conn]struct{})}
}

// Held returns how many bytes connections and requests hold.
func (g *Guard) Held() int64 { return g.held.Load() }

// relieve closes connections if the budget is exceeded. It is called by those that read,
// so that they read no more before that, however many goroutines wait for a processor.
func (g *Guard) relieve() {
	if g.held.Load() <= g.budget && !g.isFull.Load() || !g.shedding.TryLock() {
		return
	}
	defer g.shedding.Unlock()
	if time.Since(g.last) < pace {
		return
	}
	g.shed()
	g.last = time.Now()
}

// Run keeps the bounds until the context ends.
func (g *Guard) Run(ctx context.Context) {
	check, age := time.NewTicker(checkEvery), time.NewTicker(ageEvery)
	defer check.Stop()
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-age.C:
			g.age()
			g.giveBack()
		case <-check.C:
			g.isFull.Store(isFull())
			g.relieve()
		}
	}
}

// giveBack gives memory back to the system once an overload has ended: what callers
// allocate may cause no collection for a minute.
func (g *Guard) giveBack() {
	g.shedding.Lock()
	hasEnded := !g.last.IsZero() && time.Since(g.last) > calm
	if hasEnded {
		g.last = time.Time{}
	}
	g.shedding.Unlock()
	if hasEnded {
		debug.FreeOSMemory()
	}
}

// isFull reports whether live memory takes more than nine tenths of Go's limit, which
// leaves the collector too little garbage to work with.
func isFull() bool {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return false
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()+samples[1].Value.Uint64() > uint64(limit/10*9)
}

// age ages what is known about connections.
func (g *Guard) age() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.Add(g.leaving/2 - g.leaving)
	g.leaving /= 2
	for c := range g.conns {
		finished := c.finished.Swap(0)
		c.idle++
		if finished > 0 {
			c.idle = 0
		}
		c.credit.Store(c.credit.Load()/2 + finished)
	}
}

// shed closes connections, those to blame the most first, until what they held covers
// what is held too much. What connections that were closed before still hold blames no
// other. If open connections by themselves take half of the budget, those that were idle
// for the longest are closed too.
func (g *Guard) shed() {
	type candidate struct {
		*Conn
		blame int64
	}
	var blamed, idle []candidate
	var all, costs int64
	g.mu.Lock()
	for c := range g.conns {
		held := c.held.Load()
		all += held
		costs += c.cost
		if blame := c.blame(); blame >= minBlame {
			blamed = append(blamed, candidate{c, blame})
		} else if held <= c.cost && (c.credit.Load() == 0 || c.idle >= idleAfter) {
			idle = append(idle, candidate{c, int64(c.idle)})
		}
	}
	g.mu.Unlock()
	cut := func(from []candidate, excess int64) (left int64) {
		slices.SortFunc(from, func(a, b candidate) int { return cmp.Compare(b.blame, a.blame) })
		for _, c := range from {
			if excess <= 0 {
				break
			}
			excess -= c.held.Load()
			_ = c.Close()
			g.onCut()
		}
		return excess
	}
	excess := all - g.budget
	if g.isFull.Load() {
		excess = max(excess, g.budget/8)
	}
	cut(idle, min(cut(blamed, excess), costs-g.budget/2))
}
