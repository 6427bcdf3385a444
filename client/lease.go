package client

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

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

// holding is what the client holds for requests like one. What is repeated of an answer is
// what it says of limits.
type holding = lease.Holding[*Result]

// asking is an ask that a holding learns from, or none.
type asking struct {
	lease.Ask
	holding *holding
}

// byLease decides a request by what the client holds. If it cannot, the request asks,
// perhaps for more than its cost.
func (c *Client) byLease(ctx context.Context, r *Request, k *call) (a asking, isDecided bool, err error) {
	if c.leases.tracked.Load() <= 0 {
		return a, false, nil
	}
	cost, ok := r.leaseCost()
	if !ok {
		return a, false, nil
	}
	h := c.leases.find(k.leaseKey(r, cost))
	if h == nil {
		return a, false, nil
	}
	now := c.leases.now()
	if c.isDecided(h, k, int64(cost), now, now.Mono) {
		return a, true, nil
	}
	ask, probe := h.Ask(now, int64(cost), false)
	if probe != nil {
		h.Wait(int64(cost))
		defer h.Wait(-int64(cost))
	}
	for came, waited := now.Mono, 0; probe != nil; {
		select {
		case <-probe.Done():
		case <-ctx.Done():
			return a, false, ctx.Err()
		}
		if err := probe.Err(); err != nil {
			return a, false, err
		}
		now = c.leases.now()
		if c.isDecided(h, k, int64(cost), now, came) {
			return a, true, nil
		}
		// What was asked since it came does not decide it. More of the same may never do.
		if probe.Sent > came {
			waited++
		}
		ask, probe = h.Ask(now, int64(cost), waited == 2)
	}
	if ask.Units > 0 {
		k.take.Request = wire.AppendNumber(k.take.Request, takeLease, ask.Units)
	}
	return asking{ask, h}, false, nil
}

// isDecided decides a request, which came at some time, if the client holds something for it.
func (c *Client) isDecided(h *holding, k *call, cost int64, now lease.Instant, came int64) bool {
	u, ok := h.Decide(cost, now, came)
	if !ok {
		return false
	}
	if u.IsLow {
		c.refill(h, cost, now)
	}
	k.allowed = u.Allowed
	switch {
	case k.result == nil:
	case u.Allowed:
		*k.result = Result{Allowed: true, DeniedBy: -1, Limits: copyLimits(u.Answer.Limits, u.Left, 0), Leased: true, lease: leased{h, u.Grant, cost}}
	default:
		*k.result = Result{DeniedBy: u.Answer.DeniedBy, RetryAfter: later(u.Answer.RetryAfter, u.Age), Limits: copyLimits(u.Answer.Limits, 0, u.Age), Leased: true}
	}
	return true
}

// learn takes from an answer what it says about leases.
func (c *Client) learn(a asking, r *Request, k *call) {
	if a.holding == nil && k.leasable == nil {
		return
	}
	cost, ok := r.leaseCost()
	switch {
	case !ok:
	case a.holding == nil:
		c.leases.track(k.leaseKey(r, cost), c.leases.answer(k.leasable, 0, 0))
	default:
		c.learnFrom(a, k.leasable, int64(cost), int64(cost))
	}
}

// learnFrom gives a holding the answer to its ask, of a cost of which some is used, or nil
// if that cannot be leased.
func (c *Client) learnFrom(a asking, answer *Result, cost, used int64) {
	now := c.leases.now()
	if answer == nil {
		a.holding.Forgo(a.Ask, now, nil)
		return
	}
	others := c.leases.answer(answer, cost, used)
	if !answer.Allowed || a.Units > 0 { // or nobody gets it
		others.Value = &Result{DeniedBy: answer.DeniedBy, RetryAfter: answer.RetryAfter, Limits: copyLimits(answer.Limits, 0, 0)}
	}
	if answer.Allowed && others.Remaining == 0 {
		others.Denial, others.Denies = answer.outOfTokens()
	}
	if a.holding.Learn(a.Ask, others, now) {
		c.stats.leases.Add(1)
	}
}

// answer returns what an answer says to others than who asked, at a cost of which some is
// used.
func (l *leases) answer(r *Result, cost, used int64) lease.Answer[*Result] {
	a := lease.Answer[*Result]{Allowed: r.Allowed, Charged: cost, Used: used, GoodFor: min(r.goodFor, l.longest)}
	if r.Allowed {
		a.Charged = max(cost, int64(min(r.granted, math.MaxInt64)))
	}
	for i := range r.Limits {
		remaining := int64(min(r.Limits[i].Remaining, math.MaxInt64))
		if i == 0 || remaining < a.Remaining {
			a.Remaining = remaining
		}
	}
	return a
}

// outOfTokens returns what others would have got who had asked with the request, of which a
// bucket had nothing left: a denial until its next token, which is at most as far as it says.
func (r *Result) outOfTokens() (denial *Result, ok bool) {
	i := slices.IndexFunc(r.Limits, func(l Limited) bool { return l.Remaining == 0 })
	if i < 0 || !r.Limits[i].Algorithm.IsBucket() || r.Limits[i].Requests == 0 {
		return nil, false
	}
	denial = &Result{DeniedBy: i, Limits: copyLimits(r.Limits, 0, 0)}
	l := &denial.Limits[i]
	l.Allowed, l.RetryAfter = false, l.Period/time.Duration(l.Requests)+time.Microsecond
	denial.RetryAfter = l.RetryAfter
	return denial, true
}

// refill asks for the next grant in the background. A request of this cost has shown that
// the current one nears its end.
func (c *Client) refill(h *holding, cost int64, now lease.Instant) {
	a := asking{h.AskAhead(now, cost), h}
	if a.Units > 0 && !c.inBackground(func() { c.askAhead(a) }) {
		h.Forgo(a.Ask, now, nil)
	}
}

func (c *Client) askAhead(a asking) {
	k := c.calls.Get().(*call)
	defer c.release(k)
	k.take.Request = wire.AppendNumber(append(k.take.Request[:0], a.holding.Key...), takeLease, a.Units)
	answer := new(Result)
	err := c.pool.Ask(c.ctx, k.take)
	if err == nil {
		err = answer.read(k.take.Answer)
	}
	if err != nil {
		a.holding.Forgo(a.Ask, c.leases.now(), err)
		return
	}
	c.learnFrom(a, answer, 1, 0)
}

// leased is what a Result has from a grant, or nothing.
type leased struct {
	holding *holding
	from    *lease.Grant[*Result]
	cost    int64
}

// After calls f after a while, unless stopped.
func (l *leases) After(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// Spare returns what is left of a grant to the daemon, once.
func (l *leases) Spare(s lease.Spare[*Result]) {
	c := l.client
	c.inBackground(func() {
		r := Result{take: withCost(s.Holding.Key, uint64(s.Units)), Limits: s.Answer.Limits}
		if c.pool.GiveBack(context.Background(), appendGiveBack(nil, &r)) != nil {
			c.stats.lostGiveBacks.Add(1)
			return
		}
		c.stats.leaseReturned.Add(uint64(s.Units))
	})
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
	now := c.leases.now()
	c.leases.each(func(h *holding) { h.End(now) })
}

// copyLimits returns the limits of an answer that others get too, a while later.
func copyLimits(limits []Limited, more int64, after time.Duration) []Limited {
	limits = slices.Clone(limits)
	for i := range limits {
		l := &limits[i]
		l.Remaining += uint64(more)
		l.RetryAfter = later(l.RetryAfter, after)
	}
	return limits
}

// later returns a RetryAfter a while later.
func later(retry, after time.Duration) time.Duration {
	if retry > 0 {
		return max(time.Microsecond, retry-after)
	}
	return retry
}
