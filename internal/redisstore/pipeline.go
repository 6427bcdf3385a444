package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// pipeline sends batches and reads the replies: a batch is one command, or on a cluster
// one for each of its tags, sent together. A pipeline keeps its memory and serves one
// batch at a time.
type pipeline struct {
	store *Store
	// node gets the results: its breaker, clock and metrics. It is nil outside a
	// batcher.
	node     *node
	batch    []*request // in flight; the batcher's lock guards it
	commands []*script.Command
	cmds     []redis.Cmder
}

// run gets a batch decided, or sets the errors of its requests. It sends a command
// again only if Redis did not have the script (NOSCRIPT). The requests of a command
// that met a moving slot (TRYAGAIN) get errSlotMoves.
func (pl *pipeline) run(ctx context.Context, batch []*request) {
	ctx, cancel := context.WithTimeout(ctx, pl.store.timeout)
	defer cancel()
	start := time.Now()
	commands := pl.commandsFor(ctx, batch)
	pl.send(ctx, commands)
	took := time.Since(start)
	if pl.node != nil {
		pl.store.metrics.recordBatch(pl.node, commands, took)
	}
	if pl.sendUnloaded(ctx, commands) {
		took = time.Since(start)
	}
	if pl.node != nil && pl.store.onBatch != nil {
		pl.store.tellBatch(pl.node, commands, batch, start, took)
	}
	for _, c := range commands {
		pl.read(ctx, c, start, took)
	}
	pl.release(commands)
}

// commandsFor spreads requests over commands, and prepares these for sending: on a
// cluster all keys of a command share a tag.
func (pl *pipeline) commandsFor(ctx context.Context, batch []*request) []*script.Command {
	n := 0
	for _, r := range batch {
		i := 0
		for i < n && pl.store.isCluster && pl.commands[i].Tag != r.tag {
			i++
		}
		if i == n {
			if n == len(pl.commands) {
				pl.commands = append(pl.commands, script.NewCommand())
			}
			pl.commands[n].Tag = r.tag
			n++
		}
		pl.commands[i].Add(&r.Request)
	}
	for _, c := range pl.commands[:n] {
		c.Prepare(ctx, pl.store.skew, pl.store.clockArg())
	}
	return pl.commands[:n]
}

// release drops what the commands point to, and keeps their memory.
func (pl *pipeline) release(commands []*script.Command) {
	for _, c := range commands {
		c.Reset()
	}
	clear(pl.cmds)
}

// send sends commands and waits for their replies; each Cmd gets its reply, or an
// error.
func (pl *pipeline) send(ctx context.Context, commands []*script.Command) {
	if len(commands) == 1 {
		_ = pl.store.redis.Process(ctx, redisconn.Once{Cmder: commands[0].Cmd}) // Cmd has the error too
		return
	}
	pl.cmds = pl.cmds[:0]
	for _, c := range commands {
		pl.cmds = append(pl.cmds, redisconn.Once{Cmder: c.Cmd})
	}
	pipe := pl.store.redis.Pipeline()
	_ = pipe.BatchProcess(ctx, pl.cmds...)
	_, _ = pipe.Exec(ctx)
}

// sendUnloaded sends again the commands that a server did not run for lack of the
// script, now with the script itself. It reports whether there were any.
func (pl *pipeline) sendUnloaded(ctx context.Context, commands []*script.Command) bool {
	var unloaded []*script.Command
	for _, c := range commands {
		if redis.HasErrorPrefix(c.Cmd.Err(), "NOSCRIPT") {
			unloaded = append(unloaded, c)
			c.PrepareEval(ctx)
		}
	}
	if len(unloaded) > 0 {
		pl.send(ctx, unloaded)
	}
	return len(unloaded) > 0
}

// read hands a command's reply, or its error, to its requests. The command was sent at
// start, and its reply took this long.
func (pl *pipeline) read(ctx context.Context, c *script.Command, start time.Time, took time.Duration) {
	s, n := pl.store, pl.node
	reply, err := c.Cmd.Result()
	if n != nil {
		n.breaker.record(start, err)
	}
	var heading script.Heading
	switch {
	case redis.HasErrorPrefix(err, "TRYAGAIN"):
		c.Fail(errSlotMoves)
		return
	case err != nil:
		if n != nil && !isDown(err) {
			s.logRefusal(n, err)
		}
		s.reloadTopology(ctx, err)
	default:
		heading, err = c.Decode(reply)
	}
	if err != nil {
		c.Fail(wrap(err))
		return
	}
	if heading.Mended > 0 {
		s.metrics.mended.Add(float64(heading.Mended))
	}
	if n != nil && s.clock == nil {
		s.recordClock(n, time.UnixMicro(heading.Clock), start, took)
	}
}

// clockArg is the script's clock in tests; empty means the clock of Redis.
func (s *Store) clockArg() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock(), 10)
}

// wake wakes the caller of a request whose command has ended, unless a slot was moving:
// then the request is sent again. An abandoned one is not: something else has decided
// it.
func (s *Store) wake(r *request) {
	if r.Err == errSlotMoves && r.status.Load() != abandoned {
		r.Err = nil
		s.resends.Go(func() { s.resend(r) })
		return
	}
	if r.status.CompareAndSwap(sent, decided) {
		r.done <- commandEnded(r.Err)
	}
}

// resendEvery is the pause before a request that met a moving slot is sent again.
const resendEvery = 5 * time.Millisecond

// resend sends again a request that a server could not decide because its slot is
// moving. Alone, a request with one key goes to where that key is now. One with several
// keys is sent until all of them are on one node, or until its caller has no time left.
func (s *Store) resend(r *request) {
	ctx, cancel := context.WithDeadline(r.ctx, r.deadline)
	defer cancel()
	pl := &pipeline{store: s}
	for {
		if pl.run(ctx, []*request{r}); r.Err != errSlotMoves {
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
