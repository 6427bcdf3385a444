package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// batch is the requests that are sent to a node together: as one command, or on a cluster
// as one for each of their tags. It keeps its memory for the next batch.
type batch struct {
	store *Store
	// node gets the results: its breaker, clock and metrics. It is nil for requests that
	// were in no queue.
	node     *node
	requests []*request // the batcher's lock guards it
	commands []*script.Command
	cmds     []redis.Cmder
}

// send gets the requests decided, or sets their errors. It sends a command again only if
// Redis did not have the script (NOSCRIPT). The requests of a command that met a moving
// slot (TRYAGAIN) get errSlotMoves, and those whose limits by calendar came with the wrong
// windows script.ErrElsewhen.
func (b *batch) send(ctx context.Context) {
	s, n := b.store, b.node
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	start := time.Now()
	commands := b.spread()
	for _, c := range commands {
		c.Prepare(ctx, s.skew, s.clockArg(), b.windowsAt)
	}
	b.exchange(ctx, commands)
	took := time.Since(start)
	if n != nil {
		s.metrics.recordBatch(n, commands, took)
	}
	if b.exchangeUnloaded(ctx, commands) {
		took = time.Since(start)
	}
	if n != nil && s.onBatch != nil {
		b.tell(commands, start, took)
	}
	for _, c := range commands {
		reply, err := c.Cmd.Result()
		if n != nil {
			n.breaker.record(start, err)
		}
		var heading script.Heading
		if err != nil {
			err = b.failure(ctx, err)
		} else if heading, err = c.Decode(reply); err != nil {
			err = wrap(err)
		}
		switch {
		case err != nil:
			c.Fail(err)
		case heading.Mended > 0:
			s.metrics.mended.Add(float64(heading.Mended))
		}
		if err == nil && n != nil && s.clock == nil {
			s.recordClock(n, time.UnixMicro(heading.Clock), start, took)
		}
		c.Reset() // it keeps its memory, and nothing that it points to
	}
	clear(b.cmds)
}

// spread gives the requests to commands: all to one, or on a cluster, where all keys of a
// command share a tag, to one for each tag.
func (b *batch) spread() []*script.Command {
	n := 0
	for _, r := range b.requests {
		i := 0
		for i < n && b.store.isCluster && b.commands[i].Tag != r.tag {
			i++
		}
		if i == n {
			if n == len(b.commands) {
				b.commands = append(b.commands, script.NewCommand())
			}
			b.commands[n].Tag = r.tag
			n++
		}
		b.commands[i].Add(&r.Group)
	}
	return b.commands[:n]
}

// windowSlack is how far the clock of a node may be behind what this daemon takes it for,
// while the first of the two windows that the script gets still contains it.
const windowSlack = time.Minute

// windowsAt returns a moment, in microseconds since the Unix epoch, in the first window
// that limits by calendar are sent with: a little before the node's clock.
func (b *batch) windowsAt() int64 {
	now := b.store.ownClock()
	if b.node != nil {
		now += time.Duration(b.node.clock.offset.Load()).Microseconds()
	}
	return now - windowSlack.Microseconds()
}

// exchange sends commands and waits for their replies; each Cmd gets its reply, or an
// error.
func (b *batch) exchange(ctx context.Context, commands []*script.Command) {
	if len(commands) == 1 {
		_ = b.store.redis.Process(ctx, redisconn.Once{Cmder: commands[0].Cmd}) // Cmd has the error too
		return
	}
	b.cmds = b.cmds[:0]
	for _, c := range commands {
		b.cmds = append(b.cmds, redisconn.Once{Cmder: c.Cmd})
	}
	pipe := b.store.redis.Pipeline()
	_ = pipe.BatchProcess(ctx, b.cmds...)
	_, _ = pipe.Exec(ctx)
}

// exchangeUnloaded sends again the commands that a server did not run for lack of the
// script, now with the script itself. It reports whether there were any.
func (b *batch) exchangeUnloaded(ctx context.Context, commands []*script.Command) bool {
	var unloaded []*script.Command
	for _, c := range commands {
		if redis.HasErrorPrefix(c.Cmd.Err(), "NOSCRIPT") {
			unloaded = append(unloaded, c)
			c.PrepareEval(ctx)
		}
	}
	if len(unloaded) > 0 {
		b.exchange(ctx, unloaded)
	}
	return len(unloaded) > 0
}

// failure returns the error of the requests of a command that ended with err.
func (b *batch) failure(ctx context.Context, err error) error {
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		return errSlotMoves
	}
	if b.node != nil && !isDown(err) {
		b.store.logRefusal(b.node, err)
	}
	b.store.reloadTopology(ctx, err)
	return wrap(err)
}

// alone returns a batch of a request that is in no queue.
func (s *Store) alone(r *request) *batch { return &batch{store: s, requests: []*request{r}} }

// clockArg is the script's clock in tests; empty means the clock of Redis.
func (s *Store) clockArg() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock(), 10)
}

// mayResend reports whether Redis said of a request that it did not run, and may decide it
// if it is sent again.
func (r *request) mayResend() bool { return r.Err == errSlotMoves || r.Err == script.ErrElsewhen }

// wake wakes the caller of a request whose command has ended, unless it may be sent again:
// then it is. An abandoned one is not: something else has decided it.
func (s *Store) wake(r *request) {
	if r.mayResend() && r.status.Load() != abandoned {
		r.Err = nil
		s.resends.Go(func() { s.resend(r) })
		return
	}
	if r.status.CompareAndSwap(sent, decided) {
		r.done <- commandEnded(r.Err)
		return
	}
	s.replyLate(r)
}

// resendEvery is the pause before a request is sent once more.
const resendEvery = 5 * time.Millisecond

// resend sends again a request that a server could not decide, either because its slot is
// moving, or because its clock is outside of the windows of a limit by calendar. Alone, a
// request with one key goes to where that key is now, and one with limits by calendar has
// the windows that the script needs. One with several keys is sent until all of them are on
// one node, or until its caller has no time left.
func (s *Store) resend(r *request) {
	ctx, cancel := context.WithDeadline(r.ctx, r.deadline)
	defer cancel()
	alone := s.alone(r)
	for {
		if alone.send(ctx); !r.mayResend() {
			s.wake(r)
			return
		}
		r.Err = nil
		select {
		case <-time.After(resendEvery):
		case <-ctx.Done():
			r.expire(time.Now(), resendEvery)
			return
		}
	}
}
