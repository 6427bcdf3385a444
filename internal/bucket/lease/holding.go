// Package lease decides requests by what a daemon has granted for a while, or denied. It
// is what a client does; the daemon's part is an ordinary take.
package lease

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Host is what a holding needs. Its methods are called while the holding is locked.
type Host[T any] interface {
	// After calls f after a while, unless stopped.
	After(d time.Duration, f func()) (stop func())
	// Spare gets what is left of a grant that has ended.
	Spare(Spare[T])
}

// Spare is what is left of a grant.
type Spare[T any] struct {
	Holding *Holding[T]
	Answer  T
	Units   int64
}

// Answer is what a daemon said to an ask.
type Answer[T any] struct {
	Value   T // is repeated to those who are decided by it
	Allowed bool
	// Charged is how many units the ask took if it was allowed, and else the cost that was
	// denied; of them Used are used already.
	Charged, Used int64
	// GoodFor is for how long others may be decided by it, and Remaining the least that
	// remains of a limit.
	GoodFor   time.Duration
	Remaining int64
	// Denial is, of an answer that allowed, what others get who would have been denied then.
	Denial T
	Denies bool // whether there is one
}

// Ask is a request to a daemon. Learn or Forgo ends it.
type Ask struct {
	Sent  Instant
	Units uint64 // that it asks for, its own cost included; 0 if only for that

	probe *Probe
}

// Probe is an ask whose answer others wait for.
type Probe struct {
	Sent int64 // on the monotonic clock

	done chan struct{}
	err  error // before done is closed
}

// Done is closed when the ask has ended.
func (p *Probe) Done() <-chan struct{} { return p.done }

// Err returns, after Done, why it had no answer, which is a reason for those who waited too.
func (p *Probe) Err() error { return p.err }

// Holding is what a client holds for requests that differ in their cost alone: at most
// two grants, of which the first is used first, and a denial. Its methods may be called
// concurrently.
type Holding[T any] struct {
	// Key is the TakeRequest without a cost.
	Key  string
	host Host[T]

	current, next atomic.Pointer[Grant[T]] // change under mu
	denial        atomic.Pointer[denial[T]]
	denied        atomic.Uint64         // requests, by denial
	probe         atomic.Pointer[Probe] // nil if nobody asks for others; changes under mu
	pause         atomic.Int64          // until then no grant is asked for ahead, on the monotonic clock
	waiting       atomic.Int64          // the cost of those that wait, or waited and are not decided

	mu        sync.Mutex
	asked     int64         // units that requests asked the daemon for
	used      int64         // units of grants that have ended
	sampled   int64         // when rate was measured, on the monotonic clock
	total     int64         // asked and used, then
	rate      float64       // units per nanosecond
	goodFor   time.Duration // about what answers say
	remaining int64         // by the last answer
	isOver    bool          // since a denial: one asks for all
}

// New returns an empty holding.
func New[T any](host Host[T], key string, now Instant) *Holding[T] {
	return &Holding[T]{host: host, Key: key, sampled: now.Mono}
}

// Use is how a request was decided.
type Use[T any] struct {
	Allowed bool
	Answer  T             // of the daemon
	Age     time.Duration // of a denial, since it was received
	Grant   *Grant[T]     // nil if denied
	Left    int64         // of the grant
	// IsLow is set if it is time to ask for the next grant.
	IsLow bool
}

// Decide decides a request, which came at some time on the monotonic clock, by a grant, or
// else by the denial. It returns false if it cannot.
func (h *Holding[T]) Decide(cost int64, now Instant, came int64) (u Use[T], ok bool) {
	current, next := h.current.Load(), h.next.Load()
	if current != nil {
		g, left, ok := current, int64(0), false
		if left, ok = g.take(cost, now); !ok && next != nil {
			g = next
			left, ok = g.take(cost, now)
		}
		if ok {
			isLow := (left <= g.low || now.Mono >= g.soon) && (g == next || next == nil) && h.probe.Load() == nil && now.Mono >= h.pause.Load()
			return Use[T]{Allowed: true, Answer: g.answer, Grant: g, Left: left, IsLow: isLow}, true
		}
	}
	d := h.denial.Load()
	if d == nil || cost < d.cost || now.isAfter(d.end) && came >= d.sent {
		return u, false
	}
	h.denied.Add(1)
	return Use[T]{Answer: d.answer, Age: time.Duration(max(0, now.Mono-d.received))}, true
}

// Wait adds the cost of a request that Ask had wait, and takes it off, below 0, once it is
// decided.
func (h *Holding[T]) Wait(cost int64) { h.waiting.Add(cost) }

// Ask returns how a request that was not decided asks the daemon, or the probe whose
// answer it is to wait for, unless it has waited enough: over the limit, and while a grant
// is asked for, one asks for all.
func (h *Holding[T]) Ask(now Instant, cost int64, hasWaited bool) (a Ask, wait *Probe) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.probe.Load()
	if p != nil && !hasWaited {
		return a, p
	}
	units := h.plan(now, cost, cost)
	if p != nil {
		return Ask{Sent: now}, nil
	}
	return h.ask(now, units), nil
}

// AskAhead returns an ask for the next grant, after a request of this cost has shown that
// the current one nears its end. It asks for nothing if Units is 0.
func (h *Holding[T]) AskAhead(now Instant, cost int64) (a Ask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probe.Load() == nil {
		if units := h.plan(now, cost, 0); units > 0 {
			a = h.ask(now, units)
		}
	}
	return a
}

func (h *Holding[T]) ask(now Instant, units uint64) Ask {
	a := Ask{Sent: now, Units: units}
	if units > 0 || h.isOver {
		a.probe = &Probe{Sent: now.Mono, done: make(chan struct{})}
		h.probe.Store(a.probe)
	}
	return a
}

// plan returns how many units to ask for, of which the request itself asks for some, after
// one of this cost; 0 for no lease. mu is held.
func (h *Holding[T]) plan(now Instant, cost, asks int64) uint64 {
	h.makeRoom(now, cost)
	h.asked += asks
	h.measure(now.Mono)
	if h.next.Load() != nil {
		return 0
	}
	left := int64(0)
	if g := h.current.Load(); g != nil {
		left = g.left.Load()
	}
	// A quarter less than what seems to be used in that time: so a grant is used up before
	// it ends, and little goes back. Others need what remains, so a quarter of it is all
	// that one client holds, but for those who wait already: they get what there is.
	needed, waiting := h.rate*float64(h.goodFor), float64(h.waiting.Load())
	units := int64(max(min(needed*3/4, float64(h.remaining)/4), waiting)) - left
	if max(needed, waiting) < 2 || units < max(2, 2*cost) {
		h.pause.Store(now.Mono + int64(h.goodFor/8))
		return 0
	}
	return uint64(units)
}

// makeRoom ends grants that are over or used up, and the first of two if it has not
// enough for the cost. mu is held.
func (h *Holding[T]) makeRoom(now Instant, cost int64) {
	for _, g := range []*Grant[T]{h.current.Load(), h.next.Load()} {
		if g == nil {
			continue
		}
		left := g.left.Load()
		if now.isAfter(g.end) || left == 0 || left < cost && h.next.Load() != nil && g == h.current.Load() {
			h.end(g, now.Mono)
		}
	}
}

// measure measures the rate since it was last measured. A span shorter than a lease says
// less, so it counts for less. mu is held.
func (h *Holding[T]) measure(now int64) {
	span := now - h.sampled
	if span <= 0 {
		return
	}
	total := h.asked + h.used + h.current.Load().used() + h.next.Load().used()
	weight := min(1, float64(span)/float64(h.goodFor))
	h.rate += weight * (float64(total-h.total)/float64(span) - h.rate)
	h.sampled, h.total = now, total
}

// Note remembers what an answer to no ask of the holding says about further ones.
func (h *Holding[T]) Note(answer Answer[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(answer)
}

func (h *Holding[T]) note(answer Answer[T]) {
	if h.remaining = answer.Remaining; answer.GoodFor == 0 {
		h.remaining = 0 // for leases, which there are no more
	}
	h.goodFor = max(h.goodFor, answer.GoodFor)
	switch {
	case !answer.Allowed:
		h.isOver = true
		return
	case answer.Remaining >= h.waiting.Load():
		h.isOver = false
	}
	// A shorter lease is followed within some answers: at the end of a window one is good
	// for less than usual, as a denial often is.
	h.goodFor -= (h.goodFor - answer.GoodFor) / 8
}

// Learn takes a grant or a denial from an answer, and reports whether it was a grant.
func (h *Holding[T]) Learn(a Ask, answer Answer[T], now Instant) (isGrant bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.ended(a, nil) // those who wait find what was learned
	h.note(answer)
	units := answer.Charged - answer.Used
	if answer.Denies && h.waiting.Load() > 0 {
		if d := h.denial.Load(); d == nil || now.isAfter(d.end) {
			h.denial.Store(&denial[T]{sent: a.Sent.Mono, cost: answer.Remaining + 1, received: now.Mono, answer: answer.Denial})
		}
	}
	switch {
	case !answer.Allowed && answer.GoodFor > 0:
		h.denial.Store(&denial[T]{sent: a.Sent.Mono, end: endOf(a.Sent, answer.GoodFor), cost: answer.Charged, received: now.Mono, answer: answer.Value})
	case answer.Allowed && a.Units > 0 && units > 0:
		h.add(newGrant(units, a, answer), now)
		return true
	}
	return false
}

// Forgo ends an ask that had no answer, or one that cannot be leased. The error is for those
// who waited for it, and nil if they are to ask themselves.
func (h *Holding[T]) Forgo(a Ask, now Instant, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.Units > 0 {
		h.pause.Store(now.Mono + int64(h.goodFor/8))
	}
	h.remaining = 0
	h.ended(a, err)
}

// ended ends an ask. mu is held.
func (h *Holding[T]) ended(a Ask, err error) {
	if a.probe != nil {
		h.probe.Store(nil)
		a.probe.err = err
		close(a.probe.done)
	}
}

// add adds a grant. Its units end with it, also if no one asks again.
func (h *Holding[T]) add(g *Grant[T], now Instant) {
	g.stop = h.host.After(time.Duration(g.end.Mono-now.Mono), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(g, math.MaxInt64)
	})
	if h.current.Load() == nil {
		h.current.Store(g)
	} else {
		h.next.Store(g)
	}
}

// end ends a grant, unless it has ended. mu is held.
func (h *Holding[T]) end(g *Grant[T], now int64) {
	if g != h.current.Load() && g != h.next.Load() {
		return
	}
	// No use was after its end, however long ago that is.
	now = min(now, g.end.Mono)
	h.measure(now)
	if g == h.current.Load() {
		h.current.Store(h.next.Load())
	}
	h.next.Store(nil)
	g.stop()
	left := g.left.Swap(0)
	h.used += g.size - left
	if left > 0 {
		h.host.Spare(Spare[T]{Holding: h, Answer: g.answer, Units: left})
	}
}

// End ends all grants.
func (h *Holding[T]) End(now Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := h.current.Load(); g != nil; g = h.current.Load() {
		h.end(g, now.Mono)
	}
}

// GiveBack returns units to a grant, unless that has ended.
func (h *Holding[T]) GiveBack(g *Grant[T], units int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g == h.current.Load() || g == h.next.Load() {
		g.size += units
		g.left.Add(units)
	}
}

// IsAsking reports whether an ask that others wait for has no answer yet.
func (h *Holding[T]) IsAsking() bool { return h.probe.Load() != nil }

// IsIdle reports whether nobody has asked for a while, and nothing is held.
func (h *Holding[T]) IsIdle(now Instant, after time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current.Load() == nil && h.probe.Load() == nil && now.Mono-h.sampled > int64(after)
}

// Counts returns how many units were used and how many requests were denied.
func (h *Holding[T]) Counts() (units, denied uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(h.used + h.current.Load().used() + h.next.Load().used()), h.denied.Load()
}
