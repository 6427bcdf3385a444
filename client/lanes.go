package client

import (
	"log/slog"
	"slices"
	"time"
)

const (
	// refusedFor is how long streams are not tried where they did not pass.
	refusedFor = time.Minute
	// suspectedFor is how long a connection gets no lane after one on which no
	// answer came in time, while there are others: a daemon that hangs would
	// cost callers their whole time again and again until gRPC misses it.
	suspectedFor = 10 * time.Second
	// How often it is looked whether there is a connection that has no lane:
	// soon after something changed, then ever more seldom, but often enough to
	// leave a connection that a daemon finds too old before it ends it.
	spreadFirst = 50 * time.Millisecond
	spreadLast  = 5 * time.Second
)

// pick returns the lane whose turn it is, or nil where streams do not pass.
func (c *Client) pick() *lane {
	if lanes := *c.lanes.Load(); len(lanes) > 0 {
		return lanes[c.turn.Add(1)%uint32(len(lanes))]
	}
	return c.firstLane()
}

// firstLane returns a lane that is about to open: a caller does not wait for
// that longer than for an answer.
func (c *Client) firstLane() *lane {
	if c.isRefused() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lanes := *c.lanes.Load(); len(lanes) > 0 {
		return lanes[0]
	}
	l := c.newLane()
	if c.isClosed {
		l.ended = true
		return l
	}
	c.lanes.Store(&[]*lane{l})
	c.running.Go(func() { l.run(nil) })
	return l
}

// hears reports whether answers came on a lane that takes requests.
func (c *Client) hears() bool {
	return slices.ContainsFunc(*c.lanes.Load(), func(l *lane) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answers > 0
	})
}

func (c *Client) isRefused() bool {
	until := c.refused.Load()
	return until != 0 && int64(time.Since(c.made)) < until
}

// refuse has requests be asked by themselves for a while.
func (c *Client) refuse(why string) {
	if c.isRefused() {
		return
	}
	c.refused.Store(int64(time.Since(c.made) + refusedFor))
	c.options.logger.Info("streams do not pass; each request is a call", slog.String("why", why), slog.Duration("for", refusedFor))
}

// suspect has the connection of a lane get no other for a while.
func (c *Client) suspect(at connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, since := range c.suspected {
		if time.Since(since) > suspectedFor {
			delete(c.suspected, other)
		}
	}
	c.suspected[at] = time.Now()
}

// drop takes a lane out of those that take requests.
func (c *Client) drop(l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lanes := *c.lanes.Load(); slices.Contains(lanes, l) {
		rest := slices.DeleteFunc(slices.Clone(lanes), func(other *lane) bool { return other == l })
		c.lanes.Store(&rest)
	}
}

// add has a lane take requests, unless there is one on its connection or that is
// suspected. Lanes on older connections to the same daemon retire: it told this
// one to leave.
func (c *Client) add(l *lane) (isNew bool) {
	at := l.place()
	var replaced []*lane
	c.mu.Lock()
	if since, ok := c.suspected[at]; ok && time.Since(since) < suspectedFor {
		c.mu.Unlock()
		return false
	}
	lanes := []*lane{l}
	for _, other := range *c.lanes.Load() {
		switch place := other.place(); {
		case place == at || place == connection{}:
			c.mu.Unlock()
			return false
		case place.daemon == at.daemon:
			replaced = append(replaced, other)
		default:
			lanes = append(lanes, other)
		}
	}
	c.lanes.Store(&lanes)
	c.mu.Unlock()
	for _, other := range replaced {
		other.retire()
	}
	return true
}

// place returns the lane's connection; none before it is open.
func (l *lane) place() connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// spread opens lanes until each connection has one: gRPC gives each new stream
// to the next connection, so one that has a lane already closes the circle.
func (c *Client) spread() {
	pause := spreadFirst
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, spreadLast)
		if len(*c.lanes.Load()) > 0 && c.openNext() {
			pause = spreadFirst
		}
		timer.Reset(pause)
	}
}

// openNext opens one more lane and reports whether it is of use.
func (c *Client) openNext() bool {
	l := c.newLane()
	stream, err := l.open()
	if err != nil || !c.add(l) {
		l.cancel()
		return false
	}
	c.running.Go(func() { l.run(stream) })
	return true
}
