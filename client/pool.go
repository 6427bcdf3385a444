package client

import (
	"log/slog"
	"slices"
	"time"
)

const (
	// refusedFor is how long streams are not tried where they did not pass.
	refusedFor = time.Minute
	// suspectedFor is how long a connection gets no stream after one on which no
	// answer came in time, while there are others: a daemon that hangs would
	// cost callers their whole time again and again until gRPC misses it.
	suspectedFor = 10 * time.Second
	// How often it is looked whether there is a connection that has no stream:
	// soon after something changed, then ever more seldom, but often enough to
	// leave a connection that a daemon finds too old before it ends it.
	spreadFirst = 50 * time.Millisecond
	spreadLast  = 5 * time.Second
)

// pick returns the stream whose turn it is, or nil where streams do not pass.
func (c *Client) pick() *stream {
	if streams := *c.streams.Load(); len(streams) > 0 {
		return streams[c.turn.Add(1)%uint32(len(streams))]
	}
	return c.firstStream()
}

// firstStream returns a stream that is about to open: a caller does not wait for
// that longer than for an answer.
func (c *Client) firstStream() *stream {
	if c.isRefused() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if streams := *c.streams.Load(); len(streams) > 0 {
		return streams[0]
	}
	s := c.newStream()
	if c.isClosed {
		s.ended = true
		return s
	}
	c.streams.Store(&[]*stream{s})
	c.running.Go(func() { s.run(nil) })
	return s
}

// hears reports whether answers came on a stream that takes requests.
func (c *Client) hears() bool {
	return slices.ContainsFunc(*c.streams.Load(), func(s *stream) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.answers > 0
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

// suspect has the connection of a stream get no other for a while.
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

// drop takes a stream out of those that take requests.
func (c *Client) drop(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if streams := *c.streams.Load(); slices.Contains(streams, s) {
		rest := slices.DeleteFunc(slices.Clone(streams), func(other *stream) bool { return other == s })
		c.streams.Store(&rest)
	}
}

// add has a stream take requests, unless there is one on its connection or that is
// suspected. Streams on older connections to the same daemon retire: it told this
// one to leave.
func (c *Client) add(s *stream) (isNew bool) {
	at := s.place()
	var replaced []*stream
	c.mu.Lock()
	if since, ok := c.suspected[at]; ok && time.Since(since) < suspectedFor {
		c.mu.Unlock()
		return false
	}
	streams := []*stream{s}
	for _, other := range *c.streams.Load() {
		switch place := other.place(); {
		case place == at || place == connection{}:
			c.mu.Unlock()
			return false
		case place.daemon == at.daemon:
			replaced = append(replaced, other)
		default:
			streams = append(streams, other)
		}
	}
	c.streams.Store(&streams)
	c.mu.Unlock()
	for _, other := range replaced {
		other.retire()
	}
	return true
}

// place returns the stream's connection; none before it is open.
func (s *stream) place() connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// spread opens streams until each connection has one: gRPC gives each new stream
// to the next connection, so one that has a stream already closes the circle.
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
		if len(*c.streams.Load()) > 0 && c.openNext() {
			pause = spreadFirst
		}
		timer.Reset(pause)
	}
}

// openNext opens one more stream and reports whether it is of use.
func (c *Client) openNext() bool {
	s := c.newStream()
	rpc, err := s.open()
	if err != nil || !c.add(s) {
		s.cancel()
		return false
	}
	c.running.Go(func() { s.run(rpc) })
	return true
}
