package accounts

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func testMemory(budget int64) *Memory { return New(budget, func() {}) }

// opened opens an account that notes whether its connection was closed.
func opened(m *Memory, cost int64) (a *Account, isCut *bool) {
	isCut = new(bool)
	return m.Open(cost, func() { *isCut = true }), isCut
}

func TestAccountsAddUp(t *testing.T) {
	m := testMemory(1 << 30)
	a, _ := opened(m, 1000)
	b, _ := opened(m, 1000)
	a.Add(500)
	b.Add(300)
	a.finish(200, 0)
	if got := m.held.Load(); got != 2600 {
		t.Errorf("%d bytes are held", got)
	}
	a.Close()
	a.finish(300, 0) // gRPC gives up this answer after its connection
	a.Add(100)
	a.Close()
	if got := m.held.Load(); got != 1300 {
		t.Errorf("after a connection has ended %d bytes are held", got)
	}
	b.finish(300, 0)
	b.Close()
	if got := m.held.Load(); got != 0 || len(m.accounts) != 0 {
		t.Errorf("in the end %d bytes of %d connections are held", got, len(m.accounts))
	}
}

// A call stays charged until it is done, whether or not its caller waits.
func TestCallsOfACallerThatHasGoneStayCharged(t *testing.T) {
	const request, cost = 5000, 1000
	m := testMemory(1 << 30)
	a, _ := opened(m, cost)
	other, _ := opened(m, cost)
	held := func(want int64) {
		t.Helper()
		if got := m.held.Load() - cost; got != want || m.leaving.Load() != want {
			t.Errorf("%d bytes are held, %d of them by connections that have ended; wanted: %d", got, m.leaving.Load(), want)
		}
	}
	a.open(0, 3, 0)
	begun, hasCaller := a.begin()
	if begun != callCost || !hasCaller {
		t.Fatalf("a call that begins has %d bytes, and a caller: %v", begun, hasCaller)
	}
	a.Add(request)
	a.Close()
	held(3*callCost + request)
	if err := a.reserve(t.Context(), 1); !errors.Is(err, errGone) {
		t.Errorf("more is reserved for a caller who has gone: %v", err)
	}
	a.finish(callCost+request, 1)
	held(2 * callCost)
	if _, hasCaller := a.begin(); hasCaller {
		t.Error("a call that begins after its caller has gone has a caller")
	}
	a.ended(1)
	held(2 * callCost)
	// One call never begins: gRPC has refused it.
	m.age()
	held(2 * callCost)
	m.age()
	held(0)
	if len(m.accounts) != 1 {
		t.Errorf("there are %d accounts", len(m.accounts))
	}

	other.open(0, 1, 0)
	other.begin() // this call never ends
	other.Close()
	for range leavesAfter {
		m.age()
	}
	if got := m.held.Load(); got != 0 || m.leaving.Load() != 0 {
		t.Errorf("%d bytes are held for ever", got)
	}
}

// Connections that leave already make room, so no others are closed.
func TestShedWaitsForConnectionsThatLeave(t *testing.T) {
	m := testMemory(1 << 20)
	leaving, _ := opened(m, 0)
	leaving.open(0, 1, 0)
	leaving.begin()
	leaving.Add(2 << 20)
	stuck, stuckCut := opened(m, 0)
	stuck.Add(1 << 19)
	leaving.Close()
	if m.shed(); *stuckCut {
		t.Error("a connection is closed for what another holds that has ended")
	}
}

// Messages count until their handlers have read them.
func TestMessagesThatWaitForTheirHandlersAreCharged(t *testing.T) {
	m := testMemory(1 << 30)
	a, _ := opened(m, 0)
	a.open(0, 2, 0)
	a.open(0, 0, 60_000)
	first, _ := a.begin()
	second, _ := a.begin()
	if first != callCost+30_000 || second != callCost+30_000 || m.held.Load() != first+second {
		t.Errorf("two calls begin with %d and %d bytes, of %d", first, second, m.held.Load())
	}
	a.open(0, 0, 60_000) // this call reads it at once
	a.finish(first, 1)
	a.finish(second, 1)
	a.open(0, 1, 60_000) // gRPC refuses this call
	m.age()
	m.age()
	if got := m.held.Load(); got != 0 {
		t.Errorf("in the end %d bytes are held", got)
	}
}

func TestLittleIsReadWhereThereIsLittleRoom(t *testing.T) {
	const budget = 1024 * callCost
	m := testMemory(budget)
	a, _ := opened(m, 0)
	for _, c := range []struct {
		held int64
		size int
	}{{0, 16 << 10}, {budget / 2, 8 << 10}, {budget, 1 << 10}, {2 * budget, 1 << 10}} {
		t.Run(fmt.Sprintf("%d bytes of %d", c.held, budget), func(t *testing.T) {
			a.Add(c.held - m.held.Load())
			if got := a.readSize(32 << 10); got != c.size {
				t.Errorf("%d are read; wanted: %d", got, c.size)
			}
		})
	}
	if got := a.readSize(100); got != 100 {
		t.Errorf("of 100 bytes %d are read", got)
	}
}

func TestOnlyConnectionsThatFinishCallsGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		used                bool
		finished, held, few int64
		may                 bool
	}{
		"one that is new":                   {may: true},
		"one with a call":                   {held: callCost, may: true},
		"one that never finished a call":    {held: 2 * callCost},
		"one that finishes what it asks":    {used: true, finished: 100, held: 50 * callCost, may: true},
		"one that holds more":               {used: true, finished: 10, held: 50 * callCost},
		"one whose calls wait for the CPUs": {used: true, finished: 100, held: 0, few: 50},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := opened(testMemory(1<<30), 0)
			a.used, a.finished = c.used, c.finished
			a.Add(c.held)
			a.open(0, c.few, 0)
			if got := a.mayGoOn(); got != c.may {
				t.Errorf("may go on: %v", got)
			}
		})
	}
}

func TestShedClosesConnectionsThatHoldMuchAndFinishLittle(t *testing.T) {
	const budget = 10 << 20
	m := testMemory(budget)
	silent, silentCut := opened(m, ConnectionCost)
	silent.quiet = 1
	busy, busyCut := opened(m, ConnectionCost)
	stuck, stuckCut := opened(m, ConnectionCost)
	waiting, waitingCut := opened(m, ConnectionCost)
	idle, idleCut := opened(m, 0)
	idle.used, idle.quiet = true, idleAfter
	busy.Add(4 << 20)
	busy.finished = 1000
	waiting.Add(4 << 20)
	waiting.deciding.Add(4 << 20) // the calls wait for the store
	stuck.Add(1 << 20)
	m.shed()
	if *busyCut || *stuckCut || *waitingCut || *idleCut {
		t.Fatal("within the budget a connection is closed")
	}
	stuck.Add(2 << 20)
	m.shed()
	if *busyCut || !*stuckCut || *waitingCut || *idleCut {
		t.Fatalf("closed: busy %v, stuck %v, waiting %v, idle %v", *busyCut, *stuckCut, *waitingCut, *idleCut)
	}
	if held := m.held.Load(); held > budget {
		t.Errorf("%d bytes are held after that", held)
	}
	if *silentCut {
		t.Error("a connection is closed that holds less than others")
	}
	stuck, _ = opened(m, ConnectionCost)
	busy.Add(3 << 20)
	m.shed()
	if !*silentCut {
		t.Error("one that never finished a call is not to blame")
	}
	// If nobody is to blame, idle connections do not make room that they do not
	// take.
	waiting.used, busy.used, stuck.used = true, true, true
	m.shed()
	if *busyCut || *waitingCut || *idleCut {
		t.Errorf("closed: busy %v, waiting %v, idle %v", *busyCut, *waitingCut, *idleCut)
	}
}

func TestShedClosesTheConnectionThatIsIdleForTheLongest(t *testing.T) {
	const budget = 100 * ConnectionCost
	m := testMemory(budget)
	var busy *Account
	cut := make([]*bool, 100)
	for i := range cut {
		busy, cut[i] = opened(m, ConnectionCost)
		busy.quiet, busy.used = idleAfter+(i+50)%100, true
	}
	busy.quiet = 0
	count := 0
	m.onCut = func() { count++ }
	busy.Add(ConnectionCost / 2)
	m.shed()
	if count != 1 || !*cut[49] || m.held.Load() > budget {
		t.Errorf("%d are closed, the one that is idle for the longest: %v; %d bytes of %d are held", count, *cut[49], m.held.Load(), budget)
	}
}

func TestReserveWaitsAndIsRefused(t *testing.T) {
	m := testMemory(1 << 20)
	full, _ := opened(m, 0)
	full.finished = 1 << 30 // nobody is to blame
	full.Add(1 << 20)
	newcomer, _ := opened(m, 0)
	if err := newcomer.reserve(t.Context(), 1000); !errors.Is(err, errMemory) {
		t.Errorf("a newcomer gets %v", err)
	}
	// A connection that finishes its calls need not wait, up to a quarter more,
	// and with little held up to as much again.
	newcomer.used = true
	if err := newcomer.reserve(t.Context(), 1000); err != nil {
		t.Errorf("one that finished calls gets %v", err)
	}
	if err := newcomer.reserve(t.Context(), 1<<18); !errors.Is(err, errMemory) {
		t.Errorf("one that wants more than a quarter gets %v", err)
	}
	full.finish(1<<20, 0)
	if err := newcomer.reserve(t.Context(), 1<<18); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// Callers who send several takes at a time hold little, and are let in beside
// those who hold as much as they have earned.
func TestConnectionsThatHoldLittleMayExceedTheBudgetByAsMuchAgain(t *testing.T) {
	const budget = 1 << 20
	for name, c := range map[string]struct {
		used             bool
		held, more, full int64
		isLetIn          bool
	}{
		"a small request":                          {used: true, more: callCost, full: 2*budget - callCost, isLetIn: true},
		"several takes":                            {used: true, more: 2 * callCost, full: 2*budget - 2*callCost, isLetIn: true},
		"several takes beyond twice the budget":    {used: true, more: 2 * callCost, full: 2*budget - 2*callCost + 1},
		"several takes of one who finished none":   {more: 2 * callCost, full: budget},
		"as much as is little":                     {used: true, held: littleHeld - 2*callCost, more: 2 * callCost, full: 2*budget - littleHeld, isLetIn: true},
		"a byte more than is little":               {used: true, held: littleHeld - 2*callCost + 1, more: 2 * callCost, full: 2*budget - 2*littleHeld},
		"much, within a quarter beyond the budget": {used: true, held: littleHeld, more: 2 * callCost, full: budget - littleHeld, isLetIn: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMemory(budget)
			others, _ := opened(m, 0)
			others.used, others.finished = true, 1<<30
			others.Add(c.full)
			a, _ := opened(m, 0)
			if c.used {
				a.used, a.finished = true, 100
			}
			a.Add(c.held)
			if got := a.await(canceled(t), c.more) == nil; got != c.isLetIn {
				t.Errorf("with %d of %d bytes held it is let in: %v", m.Held(), int64(budget), got)
			}
		})
	}
}

// canceled returns a context that has ended, with which nothing waits for room.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	const takeStreamCost = 32 << 10
	m := testMemory(1 << 40)
	a, _ := opened(m, 0)
	for a.TryStream(takeStreamCost) {
	}
	if a.held > MaxStreams || a.held < MaxStreams-takeStreamCost {
		t.Errorf("the streams of a connection hold %d bytes", a.held)
	}
	a.ReleaseStream(takeStreamCost)
	if !a.TryStream(takeStreamCost) {
		t.Error("there is no room for one more after one has ended")
	}
}
