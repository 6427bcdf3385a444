package pipe

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Options of a Pipe.
type Options struct {
	// Tags are the hash tags of all keys.
	Tags script.Tags
	// Batch bounds the batches; the zero Bounds sends each request alone.
	Batch Bounds
	// MaxClockSkew is how far ahead of Redis's clock a state may be.
	MaxClockSkew time.Duration
	// Probe returns a request by which a node with this tag is asked whether it decides.
	Probe func(tag int) *Request
	// OnLate gets each request that was dropped, once its batch is back. It may be nil.
	OnLate func(*Request)
	// Metrics is where the metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Log gets a line when a node stops answering, refuses, or answers again.
	Log *slog.Logger
	// OnBatch is called with each batch that carried a request with a Trip, and returns
	// the name of the span that it made of it. It must be quick: the answers to the batch
	// wait for it. It is nil if no request has a Trip.
	OnBatch func(bucket.TracedBatch) bucket.SpanRef
	// Clock replaces the clock of Redis in tests, in microseconds since the Unix epoch.
	Clock func() int64
	// OwnClock is the clock of this machine, in microseconds since the Unix epoch, by
	// which the windows of limits by calendar are chosen.
	OwnClock func() int64
}

// Pipe gets requests decided by Redis. Its methods may be called concurrently.
type Pipe struct {
	wire       *wire
	topology   *topology
	collector  *collector
	registerer prometheus.Registerer // may be nil
	isClosed   atomic.Bool
}

// New returns a pipe to the servers that conn reaches.
func New(conn *redisconn.Conn, o Options) *Pipe {
	w := &wire{
		conn:      conn,
		isCluster: conn.Cluster() != nil,
		skew:      strconv.FormatInt(o.MaxClockSkew.Microseconds(), 10),
		clock:     o.Clock,
		ownClock:  o.OwnClock,
		metrics:   newMetrics(o.Metrics),
		onBatch:   o.OnBatch,
		onLate:    o.OnLate,
		doubts:    make(chan struct{}, 1),
	}
	t := &topology{wire: w, tags: o.Tags, bounds: o.Batch.effective(), probe: o.Probe, log: o.Log}
	t.start()
	p := &Pipe{wire: w, topology: t, collector: &collector{t}, registerer: o.Metrics}
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
	if p.registerer != nil {
		p.registerer.Unregister(p.collector)
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
