package redisstore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// metrics are the metrics of a store. What is counted for each request is a plain
// counter, which is cheap; the rest is counted for each batch.
type metrics struct {
	registerer prometheus.Registerer
	nodes      *nodeCollector

	knownDenials, coalesced, unknown, races, mended prometheus.Counter
	calls                                           *prometheus.CounterVec // commands, by node
	batchRequests                                   prometheus.Histogram
	roundTrip                                       prometheus.Histogram
}

// newMetrics returns the metrics of s, registered unless r is nil.
func newMetrics(r prometheus.Registerer, s *Store) *metrics {
	with := promauto.With(r)
	m := &metrics{
		registerer: r,
		nodes:      &nodeCollector{store: s},
		knownDenials: with.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_known_denials_total",
			Help: "Requests that were denied without a call, for Redis had just denied the same.",
		}),
		coalesced: with.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_coalesced_requests_total",
			Help: "Requests that travelled to Redis as one with an equal one.",
		}),
		unknown: with.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_unknown_outcomes_total",
			Help: "Requests, or on a cluster their pieces by hash tag, that were sent to Redis and whose answer came too late or never: they may have been charged.",
		}),
		races: with.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_races_total",
			Help: "Requests over several hash tags of a cluster that were allowed by the check and then not by every take; what they had taken was given back.",
		}),
		mended: with.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_mended_states_total",
			Help: "States that a wrong clock of Redis had written, further ahead than redis.max_clock_skew, and that go on from the clock as it was then.",
		}),
		calls: with.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_redis_calls_total",
			Help: "Calls of the script for callers, by node. One that is sent again, since Redis did not run it, counts once; probes do not count.",
		}, []string{"node"}),
		batchRequests: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "ratelimitd_redis_batch_requests",
			Help:    "Requests, or on a cluster their pieces by hash tag, in a batch to a node.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		roundTrip: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "ratelimitd_redis_round_trip_seconds",
			Help:    "Time from the sending of a batch to its replies, or to the end of the wait for them.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
	}
	if r != nil {
		r.MustRegister(m.nodes)
	}
	return m
}

// unregister removes the collector, which would look at the store when asked.
func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m.nodes)
	}
}

// recordBatch counts a batch that is back.
func (m *metrics) recordBatch(n *node, commands []*script.Command, took time.Duration) {
	n.calls.Add(float64(len(commands)))
	m.roundTrip.Observe(took.Seconds())
	requests, distinct := 0, 0
	for _, c := range commands {
		requests += c.Len()
		distinct += c.Distinct()
	}
	m.batchRequests.Observe(float64(requests))
	if requests > distinct {
		m.coalesced.Add(float64(requests - distinct))
	}
}

// nodeCollector collects the state of each node when it is asked.
type nodeCollector struct{ store *Store }

var (
	breakerOpenDesc = prometheus.NewDesc("ratelimitd_redis_breaker_open",
		"Whether the node is not asked because it does not answer: 1 or 0.", []string{"node"}, nil)
	clockOffsetDesc = prometheus.NewDesc("ratelimitd_redis_clock_offset_seconds",
		"How far the node's clock was ahead of this machine's at its last answer; behind it if negative.", []string{"node"}, nil)
	queueLengthDesc = prometheus.NewDesc("ratelimitd_redis_queue_length",
		"Requests, or on a cluster their pieces by hash tag, that wait for a batch to the node.", []string{"node"}, nil)
	queueMaxDesc = prometheus.NewDesc("ratelimitd_redis_queue_max_length",
		"How many of these may wait, which is redis.batch.queue.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- breakerOpenDesc
	descs <- queueLengthDesc
	descs <- queueMaxDesc
	descs <- clockOffsetDesc
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, n := range c.store.nodes() {
		open := 0.0
		if n.breaker.isOpen() {
			open = 1
		}
		metrics <- prometheus.MustNewConstMetric(breakerOpenDesc, prometheus.GaugeValue, open, n.name())
		metrics <- prometheus.MustNewConstMetric(queueLengthDesc, prometheus.GaugeValue, float64(n.batcher.length()), n.name())
		metrics <- prometheus.MustNewConstMetric(queueMaxDesc, prometheus.GaugeValue, float64(n.batcher.bounds.Queue), n.name())
		if n.clock.known.Load() {
			offset := time.Duration(n.clock.offset.Load())
			metrics <- prometheus.MustNewConstMetric(clockOffsetDesc, prometheus.GaugeValue, offset.Seconds(), n.name())
		}
	}
}
