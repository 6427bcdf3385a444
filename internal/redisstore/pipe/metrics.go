package pipe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// metrics are counted for each batch, except for unknown, which is a plain counter.
type metrics struct {
	coalesced, unknown, mended prometheus.Counter
	calls                      *prometheus.CounterVec // commands, by node
	batchRequests, roundTrip   prometheus.Histogram
}

// newMetrics returns metrics that are registered unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	with := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		coalesced: counter("ratelimitd_redis_coalesced_requests_total",
			"Requests that travelled to Redis as one with an equal one."),
		unknown: counter("ratelimitd_redis_unknown_outcomes_total",
			"Requests, or on a cluster their pieces by hash tag, that were sent to Redis and whose answer came too late or never: they may have been charged."),
		mended: counter("ratelimitd_redis_mended_states_total",
			"States that a wrong clock of Redis had written, further ahead than redis.max_clock_skew, and that go on from the clock as it was then."),
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
}

// recordBatch counts a batch that is back.
func (m *metrics) recordBatch(commands []*script.Command, took time.Duration) {
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
