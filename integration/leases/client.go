package leases

import (
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
)

// client asks as package client does. Its holding repeats of an answer the moment of the
// take, which a give-back needs.
type client struct {
	*key
	holding *lease.Holding[int64]

	waiting []request
	probe   *lease.Probe // that they wait for
}

// request is one that came at some time, and has waited for so many asks since.
type request struct {
	came   int64
	waited int
}

// arrive makes the client's requests, which come at random.
func (c *client) arrive() {
	mean := float64(c.load.Clients) / c.load.Offered * 1e6
	c.in(int64(math.Round(c.random.ExpFloat64()*mean)), func() {
		c.out.Offered++
		c.request(request{came: c.instant().Mono})
		c.arrive()
	})
}

// request decides a request, asks a daemon for it, or has it wait.
func (c *client) request(r request) {
	now := c.instant()
	if u, ok := c.holding.Decide(1, now, r.came); ok {
		if u.Allowed {
			c.out.Admitted++
		}
		if u.IsLow {
			if ahead := c.holding.AskAhead(now, 1); ahead.Units > 0 {
				c.send(ahead, 0)
			}
		}
		return
	}
	ask, probe := c.holding.Ask(now, 1, r.waited == 2)
	if probe != nil {
		c.holding.Wait(1)
		c.waiting, c.probe = append(c.waiting, r), probe
		return
	}
	c.send(ask, 1)
}

// send asks a daemon for units of which some are used.
func (c *client) send(ask lease.Ask, used int64) {
	c.in(travel, func() {
		answer := c.decide(max(1, int64(ask.Units)))
		answer.Used = used
		c.in(travel, func() { c.learn(ask, answer) })
	})
}

// learn takes an answer, and decides the requests that wait for it.
func (c *client) learn(ask lease.Ask, answer lease.Answer[int64]) {
	if answer.Allowed {
		c.out.Admitted += answer.Used
	}
	if answer.GoodFor == 0 {
		c.holding.Forgo(ask, c.instant(), nil)
	} else {
		c.holding.Learn(ask, answer, c.instant())
	}
	if len(c.waiting) == 0 {
		return
	}
	select {
	case <-c.probe.Done():
	default:
		return
	}
	waiting, sent := c.waiting, c.probe.Sent
	c.waiting = nil
	for _, r := range waiting {
		if sent > r.came {
			r.waited++
		}
		c.request(r)
		c.holding.Wait(-1)
	}
}

// After calls f even if stopped: a holding ends no grant twice.
func (c *client) After(d time.Duration, f func()) (stop func()) {
	c.in(max(0, d.Microseconds()), f)
	return func() {}
}

// Spare gives back what is left of a grant.
func (c *client) Spare(s lease.Spare[int64]) {
	c.in(travel, func() {
		c.out.GiveBacks++
		c.limit.GiveBack(&c.state, c.now, s.Answer, bucket.Demand{Cost: s.Units})
	})
}
