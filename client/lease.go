package client

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// leaseAsk is what an answer means to leases: of which holding it is the answer, when the
// request was sent, and for how many units it asked beside its cost.
type leaseAsk struct {
	holding *holding // nil if the client holds nothing for requests like this
	sent    instant
	units   uint64 // 0 if it asked for no lease
}

// leaseCost returns the one cost of all descriptors. It returns false if the request can
// not be leased.
func (r *Request) leaseCost() (cost uint64, ok bool) {
	if r.ID != "" {
		return 0, false
	}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		of := max(1, d.Cost)
		if d.Peek || d.Numbers != nil || d.HolderKey != "" || of > bucket.MaxCost || i > 0 && of != cost {
			return 0, false
		}
		cost = of
	}
	return cost, true
}

// leaseKey returns the request's bytes without its cost, which the next call overwrites.
func (k *call) leaseKey(r *Request, cost uint64) []byte {
	if cost == 1 { // which is not written
		return k.take.Request
	}
	k.key = appendTake(k.key[:0], r, false)
	return k.key
}

// byLease decides a request by what the client holds. If it cannot, the request may ask
// for more.
func (c *Client) byLease(r *Request, k *call) (a leaseAsk, isDecided bool) {
	if c.leases.tracked.Load() <= 0 {
		return a, false
	}
	cost, ok := r.leaseCost()
	if !ok {
		return a, false
	}
	h := c.leases.find(k.leaseKey(r, cost))
	if h == nil {
		return a, false
	}
	// A lease counts from before its request is sent.
	now := c.leases.now()
	if h.decide(k, int64(cost), now) {
		return a, true
	}
	a = leaseAsk{holding: h, sent: now, units: h.plan(now, int64(cost), true)}
	if a.units > 0 {
		k.take.Request = wire.AppendNumber(k.take.Request, takeLease, a.units)
	}
	return a, false
}

// learn takes from an answer what it says about leases.
func (c *Client) learn(a leaseAsk, r *Request, k *call) {
	if a.holding == nil && k.leasable == nil {
		return
	}
	cost, ok := r.leaseCost()
	switch {
	case !ok:
	case a.holding == nil:
		c.leases.track(c, k.leaseKey(r, cost), k.leasable)
	default:
		a.holding.learn(k.leasable, a, int64(cost), int64(cost))
	}
}

// refill asks for the next grant in the background. A request of this cost has shown that
// the current one nears its end.
func (c *Client) refill(h *holding, cost int64, now instant) {
	units := h.plan(now, cost, false)
	if units > 0 && !c.inBackground(func() { c.askAhead(h, units) }) {
		h.forgo()
	}
}

func (c *Client) askAhead(h *holding, units uint64) {
	k := c.calls.Get().(*call)
	defer c.release(k)
	k.take.Request = wire.AppendNumber(append(k.take.Request[:0], h.key...), takeLease, units)
	a := leaseAsk{holding: h, sent: c.leases.now(), units: units}
	if c.pool.Ask(c.ctx, k.take) != nil {
		h.forgo() // whoever asks when nothing is left learns why
		return
	}
	answer := new(Result)
	if answer.read(k.take.Answer) != nil {
		h.forgo()
		return
	}
	h.learn(answer, a, 1, 0)
}

// spare is what is left of a grant that has ended.
type spare struct {
	key    string
	limits []Limited
	units  int64
}

// giveBackSpare returns it to the daemon, once.
func (c *Client) giveBackSpare(s spare) {
	r := Result{take: withCost(s.key, uint64(s.units)), Limits: s.limits}
	if c.pool.GiveBack(context.Background(), appendGiveBack(nil, &r)) != nil {
		c.stats.lostGiveBacks.Add(1)
		return
	}
	c.stats.leaseReturned.Add(uint64(s.units))
}

// withCost returns the TakeRequest of a key with this cost of each descriptor.
func withCost(key string, cost uint64) (take []byte) {
	f := wire.Fields[string]{Rest: key}
	for f.Next() {
		switch {
		case f.Is(takeDomain, wire.Bytes):
			take = wire.AppendText(take, takeDomain, f.Bytes)
		case f.Is(takeDescriptors, wire.Bytes):
			var start int
			take, start = wire.BeginMessage(take, takeDescriptors)
			take = appendCost(append(take, f.Bytes...), cost)
			take = wire.EndMessage(take, start)
		}
	}
	return take
}

// endLeases ends all grants, and gives back what is left. Only Close calls it.
func (c *Client) endLeases() {
	c.leases.tracked.Store(math.MinInt32)
	c.leases.each(func(h *holding) {
		for _, s := range h.end() {
			c.running.Go(func() { c.giveBackSpare(s) })
		}
	})
}

// copyLimits returns the limits of an answer that others get too, a while later.
func copyLimits(limits []Limited, more int64, after time.Duration) []Limited {
	limits = slices.Clone(limits)
	for i := range limits {
		l := &limits[i]
		l.Remaining += uint64(more)
		if l.RetryAfter > 0 {
			l.RetryAfter = max(time.Microsecond, l.RetryAfter-after)
		}
	}
	return limits
}
