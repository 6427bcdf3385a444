package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// trip takes batches to a node and back: one call of the script for a batch, or
// one for each tag of it on a cluster, in one pipeline. It has the memory for
// that and serves one batch at a time.
type trip struct {
	store *Store
	calls []*call
	cmds  []redis.Cmder
}

// call is one call of the script, and the parts that it decides.
type call struct {
	tag    int
	parts  []*part
	groups []*script.Group
	lines  []*script.Group // the first of equal groups each
	batch  *script.Batch
	cmd    *redis.IntSliceCmd
}

func newTrip(s *Store) *trip { return &trip{store: s} }

// run has parts decided, or gives them errors. It sends a call again only where
// Redis did not have the script (NOSCRIPT). The parts of a call that met a slot
// on the move (TRYAGAIN) are left for endTrip to send again, each alone. It
// tells the node, if there is one, how it went.
func (t *trip) run(ctx context.Context, n *node, parts []*part) {
	ctx, cancel := context.WithTimeout(ctx, t.store.timeout)
	defer cancel()
	start := time.Now()
	calls := t.callsFor(parts)
	for _, c := range calls {
		c.encode(ctx, t.store.skew, t.store.clockArg())
	}
	t.send(ctx, calls)
	took := time.Since(start)
	if n != nil {
		t.store.metrics.wasAway(n, calls, len(parts), took)
	}
	if t.sendUnloaded(ctx, calls) {
		took = time.Since(start)
	}
	for _, c := range calls {
		t.end(ctx, c, n, start, took)
	}
	t.release(calls)
}

// callsFor spreads parts over calls: on a cluster all keys of one share a slot.
func (t *trip) callsFor(parts []*part) []*call {
	n := 0
	for _, p := range parts {
		i := 0
		for i < n && t.store.sharded && t.calls[i].tag != p.tag {
			i++
		}
		if i == n {
			if n == len(t.calls) {
				t.calls = append(t.calls, t.store.newCall())
			}
			t.calls[n].tag = p.tag
			n++
		}
		c := t.calls[i]
		c.parts = append(c.parts, p)
		c.groups = append(c.groups, &p.Group)
	}
	return t.calls[:n]
}

func (t *trip) release(calls []*call) {
	for _, c := range calls {
		clear(c.parts)
		clear(c.groups)
		c.parts, c.groups, c.lines = c.parts[:0], c.groups[:0], nil
		c.cmd = nil
	}
	clear(t.cmds)
}

// send sends calls and waits for their replies, which are in their commands.
func (t *trip) send(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		_ = t.store.redis.Process(ctx, redisconn.Once{Cmder: calls[0].cmd}) // the command has the error too
		return
	}
	t.cmds = t.cmds[:0]
	for _, c := range calls {
		t.cmds = append(t.cmds, redisconn.Once{Cmder: c.cmd})
	}
	pipe := t.store.redis.Pipeline()
	_ = pipe.BatchProcess(ctx, t.cmds...)
	_, _ = pipe.Exec(ctx)
}

// sendUnloaded sends the script itself where a server did not have it, and
// reports whether there was one.
func (t *trip) sendUnloaded(ctx context.Context, calls []*call) bool {
	var unloaded []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unloaded = append(unloaded, c)
			c.evalInstead(ctx)
		}
	}
	if len(unloaded) > 0 {
		t.send(ctx, unloaded)
	}
	return len(unloaded) > 0
}

// end tells the parts of a call that is back how it went. The call began at
// start and took as long.
func (t *trip) end(ctx context.Context, c *call, n *node, start time.Time, took time.Duration) {
	reply, err := c.cmd.Result()
	if n != nil {
		n.breaker.saw(start, err)
	}
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		for _, p := range c.parts {
			p.again = true
		}
		return
	}
	if err == nil {
		err = t.decode(c, reply, n, start, took)
	} else {
		if n != nil && !isDown(err) {
			t.store.logRefusal(n, err)
		}
		t.store.doubtTopology(ctx, err)
	}
	if err != nil {
		for _, p := range c.parts {
			p.Err = wrap(err)
		}
	}
}

// decode reads the reply to a call.
func (t *trip) decode(c *call, reply []int64, n *node, start time.Time, took time.Duration) error {
	h, err := script.Decode(reply, c.lines)
	if err != nil {
		return err
	}
	if h.Mended > 0 {
		t.store.metrics.mended.Add(float64(h.Mended))
	}
	if n != nil && t.store.clock == nil {
		t.store.sawClock(n, time.UnixMicro(h.Clock), start, took)
	}
	return nil
}

// endTrip ends the way of a part that was on a trip. One that was left is not
// sent again: something else has answered for it.
func (s *Store) endTrip(p *part) {
	if p.again && p.standing.Load() != left {
		s.again.Go(func() { s.tryAgain(p) })
		return
	}
	p.arrive()
}

// clockArg is the script's clock: none but in tests.
func (s *Store) clockArg() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock(), 10)
}

// doubtTopology has the client look for a cluster's new masters where an error
// may mean that there are some, and looks at what it finds.
func (s *Store) doubtTopology(ctx context.Context, err error) {
	if !s.redis.Doubt(ctx, err) {
		return
	}
	select {
	case s.doubts <- struct{}{}:
	default:
	}
}

func (s *Store) newCall() *call { return &call{batch: script.NewBatch(s.seed)} }

// encode makes the command of the call.
func (c *call) encode(ctx context.Context, skew, clock string) {
	c.lines = c.batch.Coalesce(c.groups)
	c.batch.Encode(c.lines)
	c.cmd = redis.NewIntSliceCmd(ctx, c.batch.Command(skew, clock)...)
}

// evalInstead sends the script itself, for a server that does not have it.
func (c *call) evalInstead(ctx context.Context) {
	args := c.cmd.Args()
	args[0], args[1] = "eval", &script.Source
	c.cmd = redis.NewIntSliceCmd(ctx, args...)
}

// tryAgainEvery is how often what met a slot on the move is sent again.
const tryAgainEvery = 5 * time.Millisecond

// tryAgain sends a part that a server could not decide together with others, or
// with all its keys, for their slot is on the move: alone, so that if it has one
// key it goes where that is now; and if it has several, again until they can be
// decided or the caller has no time left.
func (s *Store) tryAgain(p *part) {
	ctx, cancel := context.WithDeadline(p.ctx, p.deadline)
	defer cancel()
	t := newTrip(s)
	for {
		err := t.runAlone(ctx, p)
		if err == nil {
			p.arrive()
			return
		}
		if !redis.HasErrorPrefix(err, "TRYAGAIN") {
			p.Err = wrap(err)
			p.arrive()
			return
		}
		select {
		case <-time.After(tryAgainEvery):
		case <-ctx.Done():
			p.expire(time.Now(), tryAgainEvery)
			return
		}
	}
}

// runAlone has one part decided, by a call of its own.
func (t *trip) runAlone(ctx context.Context, p *part) error {
	calls := t.callsFor([]*part{p})
	defer t.release(calls)
	c := calls[0]
	c.encode(ctx, t.store.skew, t.store.clockArg())
	t.send(ctx, calls)
	t.sendUnloaded(ctx, calls)
	reply, err := c.cmd.Result()
	if err != nil {
		return err
	}
	return t.decode(c, reply, nil, time.Time{}, 0)
}
