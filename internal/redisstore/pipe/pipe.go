package pipe

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// Pipe gets requests decided by Redis. Its methods may be called concurrently.
type Pipe struct {
	wire      *wire
	topology  *topology
	collector *collector
	isClosed  atomic.Bool
}

// New returns a pipe to the servers that conn reaches.
func New(conn *redisconn.Conn, o Options) *Pipe {
	w := &wire{
		Options:   o,
		conn:      conn,
		isCluster: conn.Cluster() != nil,
		skew:      strconv.FormatInt(o.MaxClockSkew.Microseconds(), 10),
		metrics:   newMetrics(o.Metrics),
		doubts:    make(chan struct{}, 1),
	}
	t := newTopology(w)
	p := &Pipe{wire: w, topology: t, collector: &collector{t}}
	if o.Metrics != nil {
		o.Metrics.MustRegister(p.collector)
	}
	return p
}

// Close decides or fails the requests that wait, ends the pipe's goroutines, and
// unregisters the metrics that it would be asked for.
func (p *Pipe) Close() {
	p.isClosed.Store(true)
	p.topology.close()
	p.wire.resends.Wait()
	if p.wire.Metrics != nil {
		p.wire.Metrics.Unregister(p.collector)
	}
}

// Send sends a request that is Waiting on its way; Wait must follow. The wait ends when
// ctx ends, or at the deadline. A caller who mayLead may be the one who sends to an idle
// node: then Send returns when that has answered, whatever becomes of ctx.
func (p *Pipe) Send(ctx context.Context, deadline time.Time, r *Request, mayLead bool) {
	r.ctx, r.deadline = ctx, deadline
	err := p.topology.queueOf(r.Tag).enqueue(r, mayLead)
	for err == errClosed && !p.isClosed.Load() { // the tag has just moved
		err = p.topology.queueOf(r.Tag).enqueue(r, mayLead)
	}
	if err != nil {
		r.refuse(err)
	}
}

// Wait waits until a request is Decided, or else has a Cause. now is the time, or that of
// a moment ago.
func (p *Pipe) Wait(r *Request, now time.Time) {
	r.wait(now)
	if r.mayHaveRun() {
		p.wire.metrics.unknown.Inc()
	}
}

// Ask sends a request at once, past the queue and the breaker of its node, and returns why
// Redis did not decide it.
func (p *Pipe) Ask(ctx context.Context, r *Request) error {
	p.wire.alone(r).send(ctx)
	return r.Err
}

// NodeOf returns what stands for the node that has the keys of a tag, as far as the
// topology is known.
func (p *Pipe) NodeOf(tag int) any { return p.topology.queueOf(tag) }

// AddressOf returns the address of that node, or redisconn.AnyNode.
func (p *Pipe) AddressOf(tag int) string { return p.topology.queueOf(tag).node.address }

// Masters returns, by tag, the address of its master in the cluster, as the client knows
// it.
func (p *Pipe) Masters(ctx context.Context) ([]string, error) {
	return p.topology.masters(ctx, p.wire.conn.Cluster())
}
