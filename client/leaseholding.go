package client

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// holding is what the client holds for requests that differ in their cost alone: at most
// two grants, of which the first is used first, and a denial.
type holding struct {
	client *Client
	key    string // the TakeRequest without a cost

	current, next atomic.Pointer[grant] // change under mu
	denial        atomic.Pointer[denial]
	denied        atomic.Uint64 // requests, by denial
	isAsking      atomic.Bool   // for a grant; becomes true under mu
	pause         atomic.Int64  // until then no grant is asked for ahead, on the monotonic clock

	mu        sync.Mutex
	asked     int64         // units that requests asked the daemon for
	used      int64         // units of grants that have ended
	sampled   int64         // when rate was measured, on the monotonic clock
	total     int64         // asked and used, then
	rate      float64       // units per nanosecond
	goodFor   time.Duration // the longest that an answer said
	remaining int64         // the least of the limits, by the last answer
}

// decide decides a request by a grant, or else by the denial.
func (h *holding) decide(k *call, cost int64, now instant) bool {
	current, next := h.current.Load(), h.next.Load()
	if current != nil {
		g, left, ok := current, int64(0), false
		if left, ok = g.take(cost, now); !ok && next != nil {
			g = next
			left, ok = g.take(cost, now)
		}
		if ok {
			h.grantTo(k, g, cost, left)
			if (left <= g.low || now.mono >= g.soon) && (g == next || next == nil) && !h.isAsking.Load() && now.mono >= h.pause.Load() {
				h.client.refill(h, cost, now)
			}
			return true
		}
	}
	d := h.denial.Load()
	if d == nil || cost < d.cost || now.isAfter(d.end) {
		return false
	}
	h.denied.Add(1)
	if k.allowed = false; k.result != nil {
		d.fill(k.result, now)
	}
	return true
}

func (h *holding) grantTo(k *call, g *grant, cost, left int64) {
	if k.allowed = true; k.result != nil {
		*k.result = Result{Allowed: true, DeniedBy: -1, Limits: copyLimits(g.limits, left, 0), Leased: true, lease: leased{h, g, cost}}
	}
}

// plan returns how many units to ask for beside a request of this cost, or ahead of one;
// 0 for no lease. Otherwise learn or forgo must follow. It is called for each request that
// asks the daemon.
func (h *holding) plan(now instant, cost int64, isRequest bool) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.makeRoom(now, cost)
	if isRequest {
		h.asked += cost
	}
	h.measure(now.mono)
	if h.isAsking.Load() || h.next.Load() != nil {
		return 0
	}
	left := int64(0)
	if g := h.current.Load(); g != nil {
		left = g.left.Load()
	}
	// A quarter less than what seems to be used in that time: so a grant is used up before
	// it ends, and little goes back. Others need what remains, so a quarter of it is all
	// that one client holds.
	needed := h.rate * float64(h.goodFor)
	units := int64(min(needed*3/4, float64(h.remaining)/4)) - left
	if needed < 2 || units < max(2, 2*cost) {
		h.pause.Store(now.mono + int64(h.goodFor/8))
		return 0
	}
	h.isAsking.Store(true)
	return uint64(units)
}

// makeRoom ends grants that are over or used up, and the first of two if it has not
// enough for the cost.
func (h *holding) makeRoom(now instant, cost int64) {
	for _, g := range []*grant{h.current.Load(), h.next.Load()} {
		if g == nil {
			continue
		}
		left := g.left.Load()
		if now.isAfter(g.end) || left == 0 || left < cost && h.next.Load() != nil && g == h.current.Load() {
			// No use was after its end, however long ago that is.
			h.measure(min(now.mono, g.end.mono))
			h.drop(g)
		}
	}
}

// measure measures the rate since it was last measured. A span shorter than a lease says
// less, so it counts for less.
func (h *holding) measure(now int64) {
	span := now - h.sampled
	if span <= 0 {
		return
	}
	total := h.asked + h.used + h.current.Load().used() + h.next.Load().used()
	weight := min(1, float64(span)/float64(h.goodFor))
	h.rate += weight * (float64(total-h.total)/float64(span) - h.rate)
	h.sampled, h.total = now, total
}

// learn takes a grant or a denial from an answer, or nothing if it cannot be leased. Of
// what was charged, used is used already.
func (h *holding) learn(answer *Result, a leaseAsk, charged, used int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.units > 0 {
		h.isAsking.Store(false)
	}
	if answer == nil {
		h.remaining = 0
		return
	}
	h.note(answer)
	now := h.client.leases.now()
	if !answer.Allowed {
		if answer.goodFor > 0 {
			d := &denial{end: endOf(a.sent, answer.goodFor), cost: charged, received: now.mono}
			d.answer = Result{DeniedBy: answer.DeniedBy, RetryAfter: answer.RetryAfter, Limits: copyLimits(answer.Limits, 0, 0)}
			h.denial.Store(d)
		}
		return
	}
	units := max(charged, int64(min(answer.granted, math.MaxInt64))) - used
	if a.units == 0 || units == 0 {
		return
	}
	h.client.stats.leases.Add(1)
	h.add(newGrant(units, a, answer), now)
}

// note remembers what an answer says about further ones.
func (h *holding) note(answer *Result) {
	h.goodFor = max(h.goodFor, answer.goodFor)
	h.remaining = 0
	for i := range answer.Limits {
		remaining := int64(min(answer.Limits[i].Remaining, math.MaxInt64))
		if i == 0 || remaining < h.remaining {
			h.remaining = remaining
		}
	}
}

// add adds a grant. Its units end with it, also if no one asks again.
func (h *holding) add(g *grant, now instant) {
	g.timer = time.AfterFunc(time.Duration(g.end.mono-now.mono), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.measure(g.end.mono)
		h.drop(g)
	})
	if h.current.Load() == nil {
		h.current.Store(g)
	} else {
		h.next.Store(g)
	}
}

// drop ends a grant, unless it has ended, and gives back what is left. mu is held.
func (h *holding) drop(g *grant) {
	if s := h.take(g); s.units > 0 {
		h.client.inBackground(func() { h.client.giveBackSpare(s) })
	}
}

// take ends a grant, unless it has ended, and returns what is left. mu is held.
func (h *holding) take(g *grant) spare {
	switch g {
	case h.current.Load():
		h.current.Store(h.next.Load())
		h.next.Store(nil)
	case h.next.Load():
		h.next.Store(nil)
	default:
		return spare{}
	}
	g.timer.Stop()
	left := g.left.Swap(0)
	h.used += g.size - left
	return spare{h.key, g.limits, left}
}

// forgo ends an ask for a grant that had no answer.
func (h *holding) forgo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause.Store(h.client.leases.now().mono + int64(h.goodFor/8))
	h.isAsking.Store(false)
}

// end ends the grants and returns what is left.
func (h *holding) end() (left []spare) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := h.current.Load(); g != nil; g = h.current.Load() {
		if s := h.take(g); s.units > 0 {
			left = append(left, s)
		}
	}
	return left
}

// isIdle reports whether no one has asked for a while.
func (h *holding) isIdle(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current.Load() == nil && !h.isAsking.Load() && now.mono-h.sampled > int64(idleAfter)
}

// counts returns how many units were used and how many requests were denied.
func (h *holding) counts() (units, denied uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(h.used + h.current.Load().used() + h.next.Load().used()), h.denied.Load()
}

// leased is what a Result has from a grant, or nothing.
type leased struct {
	holding *holding
	from    *grant
	cost    int64
}

// giveBack returns the units to their grant, unless that has ended.
func (l *leased) giveBack() {
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.from == h.current.Load() || l.from == h.next.Load() {
		l.from.size += l.cost
		l.from.left.Add(l.cost)
	}
}
