package pipe

import (
	"log/slog"
	"math"
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

// Bounds bound the batches that are sent to a node.
type Bounds struct {
	// Size is the maximum number of hits in a batch; a request with more goes alone. 0
	// and 1 send every request alone, as soon as there is a connection: InFlight is
	// then redisconn.PoolPerNode, whatever it says.
	Size int
	// InFlight is the maximum number of batches in flight to a node; at least 1.
	InFlight int
	// Queue is the maximum number of requests that wait for a batch to a node; at least
	// 1. With a Size of 0 or 1 it may be 0, which means no bound.
	Queue int
}

// effective returns what b means to a queue.
func (b Bounds) effective() Bounds {
	if b.Size > 1 {
		return b
	}
	if b.Queue == 0 {
		b.Queue = math.MaxInt
	}
	return Bounds{Size: 1, InFlight: redisconn.PoolPerNode, Queue: b.Queue}
}
