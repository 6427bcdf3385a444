package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// pipeline sends batches to a node and reads the replies: a batch is one
// command, or on a cluster one for each of its tags, sent together. A pipeline
// keeps its memory and serves one batch at a time.
type pipeline struct {
	store    *Store
	commands []*command
	cmds     []redis.Cmder
}

// command is one EVALSHA, and the parts that it decides.
type command struct {
	tag     int
	parts   []*part
	groups  []*script.Group
	lines   []*script.Group // the first of equal groups each
	encoder *script.Encoder
	cmd     *redis.IntSliceCmd
}

func newPipeline(s *Store) *pipeline { return &pipeline{store: s} }

// run has parts decided, or sets their errors. It sends a command again only
// where Redis did not have the script (NOSCRIPT). The parts of a command that
// met a slot on the move (TRYAGAIN) are left for endPart to send again, each
// alone. Unless n is nil, its breaker, clock and metrics learn how it went.
func (pl *pipeline) run(ctx context.Context, n *node, parts []*part) {
	ctx, cancel := context.WithTimeout(ctx, pl.store.timeout)
	defer cancel()
	start := time.Now()
	commands := pl.commandsFor(parts)
	for _, c := range commands {
		c.encode(ctx, pl.store.skew, pl.store.clockArg())
	}
	pl.send(ctx, commands)
	took := time.Since(start)
	if n != nil {
		pl.store.metrics.recordBatch(n, commands, len(parts), took)
	}
	if pl.sendUnloaded(ctx, commands) {
		took = time.Since(start)
	}
	if n != nil && pl.store.onBatch != nil {
		pl.store.tellBatch(n, commands, parts, start, took)
	}
	for _, c := range commands {
		pl.end(ctx, c, n, start, took)
	}
	pl.release(commands)
}

// commandsFor spreads parts over commands: on a cluster all keys of a command
// share a tag.
func (pl *pipeline) commandsFor(parts []*part) []*command {
	n := 0
	for _, p := range parts {
		i := 0
		for i < n && pl.store.isCluster && pl.commands[i].tag != p.tag {
			i++
		}
		if i == n {
			if n == len(pl.commands) {
				pl.commands = append(pl.commands, pl.store.newCommand())
			}
			pl.commands[n].tag = p.tag
			n++
		}
		c := pl.commands[i]
		c.parts = append(c.parts, p)
		c.groups = append(c.groups, &p.Group)
	}
	return pl.commands[:n]
}

// release drops what the commands point to, and keeps their memory.
func (pl *pipeline) release(commands []*command) {
	for _, c := range commands {
		clear(c.parts)
		clear(c.groups)
		c.parts, c.groups, c.lines = c.parts[:0], c.groups[:0], nil
		c.cmd = nil
	}
	clear(pl.cmds)
}

// send sends commands and waits for their replies; each cmd has its own, or an
// error.
func (pl *pipeline) send(ctx context.Context, commands []*command) {
	if len(commands) == 1 {
		_ = pl.store.redis.Process(ctx, redisconn.Once{Cmder: commands[0].cmd}) // cmd has the error too
		return
	}
	pl.cmds = pl.cmds[:0]
	for _, c := range commands {
		pl.cmds = append(pl.cmds, redisconn.Once{Cmder: c.cmd})
	}
	pipe := pl.store.redis.Pipeline()
	_ = pipe.BatchProcess(ctx, pl.cmds...)
	_, _ = pipe.Exec(ctx)
}

// sendUnloaded sends those commands again that a server did not run for lack of
// the script, now with the script itself. It reports whether there were any.
func (pl *pipeline) sendUnloaded(ctx context.Context, commands []*command) bool {
	var unloaded []*command
	for _, c := range commands {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unloaded = append(unloaded, c)
			c.evalInstead(ctx)
		}
	}
	if len(unloaded) > 0 {
		pl.send(ctx, unloaded)
	}
	return len(unloaded) > 0
}

// end hands a command's reply, or its error, to its parts. The command was sent
// at start, and its reply took that long.
func (pl *pipeline) end(ctx context.Context, c *command, n *node, start time.Time, took time.Duration) {
	reply, err := c.cmd.Result()
	if n != nil {
		n.breaker.record(start, err)
	}
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		for _, p := range c.parts {
			p.Err = errSlotMoves
		}
		return
	}
	if err == nil {
		err = pl.decode(c, reply, n, start, took)
	} else {
		if n != nil && !isDown(err) {
			pl.store.logRefusal(n, err)
		}
		pl.store.reloadTopology(ctx, err)
	}
	if err != nil {
		for _, p := range c.parts {
			p.Err = wrap(err)
		}
	}
}

// decode reads the reply to a command.
func (pl *pipeline) decode(c *command, reply []int64, n *node, start time.Time, took time.Duration) error {
	h, err := script.Decode(reply, c.lines)
	if err != nil {
		return err
	}
	if h.Mended > 0 {
		pl.store.metrics.mended.Add(float64(h.Mended))
	}
	if n != nil && pl.store.clock == nil {
		pl.store.recordClock(n, time.UnixMicro(h.Clock), start, took)
	}
	return nil
}

// runAlone has one part decided, by a command of its own.
func (pl *pipeline) runAlone(ctx context.Context, p *part) error {
	commands := pl.commandsFor([]*part{p})
	defer pl.release(commands)
	c := commands[0]
	c.encode(ctx, pl.store.skew, pl.store.clockArg())
	pl.send(ctx, commands)
	pl.sendUnloaded(ctx, commands)
	reply, err := c.cmd.Result()
	if err != nil {
		return err
	}
	return pl.decode(c, reply, nil, time.Time{}, 0)
}

func (s *Store) newCommand() *command { return &command{encoder: script.NewEncoder(s.seed)} }

// encode makes the command from its groups.
func (c *command) encode(ctx context.Context, skew, clock string) {
	c.lines = c.encoder.Coalesce(c.groups)
	c.encoder.Encode(c.lines)
	c.cmd = redis.NewIntSliceCmd(ctx, c.encoder.Command(skew, clock)...)
}

// evalInstead makes an EVAL of the command, for a server that does not have the
// script.
func (c *command) evalInstead(ctx context.Context) {
	args := c.cmd.Args()
	args[0], args[1] = "eval", &script.Source
	c.cmd = redis.NewIntSliceCmd(ctx, args...)
}

// clockArg is the script's clock in tests; empty means the clock of Redis.
func (s *Store) clockArg() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock(), 10)
}

// endPart ends a part whose batch is back, or sends it again. An abandoned part
// is not sent again: something else has decided it.
func (s *Store) endPart(p *part) {
	if p.Err == errSlotMoves && p.status.Load() != abandoned {
		p.Err = nil
		s.resends.Go(func() { s.resend(p) })
		return
	}
	p.finish()
}

// resendEvery is the pause before a part that met a slot on the move is sent
// again.
const resendEvery = 5 * time.Millisecond

// resend sends a part again that a server could not decide because its slot is
// on the move. Alone, a part with one key goes where that key is now. A part
// with several keys is sent until all of them are on one node, or until its
// caller has no time left.
func (s *Store) resend(p *part) {
	ctx, cancel := context.WithDeadline(p.ctx, p.deadline)
	defer cancel()
	pl := newPipeline(s)
	for {
		err := pl.runAlone(ctx, p)
		if err == nil {
			p.finish()
			return
		}
		if !redis.HasErrorPrefix(err, "TRYAGAIN") {
			p.Err = wrap(err)
			p.finish()
			return
		}
		select {
		case <-time.After(resendEvery):
		case <-ctx.Done():
			p.expire(time.Now(), resendEvery)
			return
		}
	}
}
