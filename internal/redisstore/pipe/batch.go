package pipe

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// batch is the requests that are sent to a node together: as one command, or on a cluster
// as one for each of their tags. It keeps its memory for the next batch.
type batch struct {
	wire *wire
	// node gets the results: its breaker, clock and metrics. It is nil for requests that
	// were in no queue.
	node     *node
	requests []*Request // the queue's lock guards it
	commands []*script.Command
	cmds     []redis.Cmder
}

// alone returns a batch of a request that is in no queue.
func (w *wire) alone(r *Request) *batch { return &batch{wire: w, requests: []*Request{r}} }

// send gets the requests decided, or sets their errors. It sends a command again only if
// Redis did not have the script (NOSCRIPT). The requests of a command that met a moving
// slot (TRYAGAIN) get errSlotMoves, and those whose limits by calendar came with the wrong
// windows script.ErrElsewhen.
func (b *batch) send(ctx context.Context) {
	w, n := b.wire, b.node
	ctx, cancel := context.WithTimeout(ctx, w.conn.Timeout())
	defer cancel()
	start := time.Now()
	commands := b.spread()
	for _, c := range commands {
		c.Prepare(ctx, w.skew, w.clockArg(), b.windowsAt)
	}
	b.cmds = w.exchange(ctx, commands, b.cmds)
	took := time.Since(start)
	if n != nil {
		n.calls.Add(float64(len(commands)))
		w.metrics.recordBatch(commands, took)
	}
	if b.exchangeUnloaded(ctx, commands) {
		took = time.Since(start)
	}
	if n != nil && w.OnBatch != nil {
		b.report(commands, start, took)
	}
	for _, c := range commands {
		b.finish(ctx, c, start, took)
		c.Reset() // it keeps its memory, and nothing that it points to
	}
	clear(b.cmds)
}

// finish gets the requests of a command their decisions from its reply, or an error.
func (b *batch) finish(ctx context.Context, c *script.Command, start time.Time, took time.Duration) {
	reply, err := c.Cmd.Result()
	if b.node != nil {
		b.node.breaker.record(start, err)
	}
	if err != nil {
		c.Fail(b.failure(ctx, err))
		return
	}
	heading, err := c.Decode(reply)
	if err != nil {
		c.Fail(wrap(err))
		return
	}
	if heading.Mended > 0 {
		b.wire.metrics.mended.Add(float64(heading.Mended))
	}
	if b.node != nil && b.wire.Clock == nil {
		b.node.recordClock(time.UnixMicro(heading.Clock), start, took)
	}
}

// spread gives the requests to commands: all to one, or on a cluster, where all keys of a
// command share a tag, to one for each tag.
func (b *batch) spread() []*script.Command {
	n := 0
	for _, r := range b.requests {
		i := 0
		for i < n && b.wire.isCluster && b.commands[i].Tag != r.Tag {
			i++
		}
		if i == n {
			if n == len(b.commands) {
				b.commands = append(b.commands, script.NewCommand())
			}
			b.commands[n].Tag = r.Tag
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
	now := b.wire.OwnClock()
	if b.node != nil {
		now += time.Duration(b.node.clock.offset.Load()).Microseconds()
	}
	return now - windowSlack.Microseconds()
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
		b.cmds = b.wire.exchange(ctx, unloaded, b.cmds)
	}
	return len(unloaded) > 0
}

// failure returns the error of the requests of a command that ended with err.
func (b *batch) failure(ctx context.Context, err error) error {
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		return errSlotMoves
	}
	if b.node != nil && !isDown(err) {
		b.node.logRefusal(err)
	}
	b.wire.doubt(ctx, err)
	return wrap(err)
}

// report reports a batch that is back, if it carried a traced request.
func (b *batch) report(commands []*script.Command, start time.Time, took time.Duration) {
	var traced []*Trip
	limits := 0
	for _, r := range b.requests {
		limits += len(r.Hits)
		if r.Trip != nil {
			traced = append(traced, r.Trip)
		}
	}
	if traced == nil {
		return
	}
	failed := false
	for _, c := range commands {
		failed = failed || c.Cmd.Err() != nil
	}
	span := b.wire.OnBatch(bucket.TracedBatch{
		Node: b.node.name(), Requests: len(b.requests), Commands: len(commands), Limits: limits, Start: start, Took: took, Failed: failed,
	})
	for _, t := range traced {
		t.Back, t.Batch = start.Add(took), span
	}
}

// resendEvery is the pause before a request is sent once more.
const resendEvery = 5 * time.Millisecond

// deliver hands a request whose command has ended to its caller, or sends it again if
// Redis may then decide it. A caller who has left gets nothing.
func (w *wire) deliver(r *Request) {
	if r.mayResend() && !r.IsGone() {
		r.Err = nil
		w.resends.Go(func() { w.resend(r) })
		return
	}
	if !r.arrive() && !r.move(Abandoned, Returned) && w.OnLate != nil {
		w.OnLate(r)
	}
}

// resend sends again a request that a server could not decide, either because its slot is
// moving, or because its clock is outside of the windows of a limit by calendar. Alone, a
// request with one key goes to where that key is now, and one with limits by calendar has
// the windows that the script needs. One with several keys is sent until all of them are on
// one node, or until its caller has no time left.
func (w *wire) resend(r *Request) {
	ctx, cancel := context.WithDeadline(r.ctx, r.deadline)
	defer cancel()
	alone := w.alone(r)
	for {
		if alone.send(ctx); !r.mayResend() {
			w.deliver(r)
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
