package pipe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector collects the state of each node when it is asked.
type collector struct{ topology *topology }

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
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{breakerOpenDesc, queueLengthDesc, queueMaxDesc, clockOffsetDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	for _, q := range c.topology.queues() {
		n := q.node
		gauge := func(desc *prometheus.Desc, value float64) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, n.name())
		}
		open := 0.0
		if n.breaker.isOpen.Load() {
			open = 1
		}
		gauge(breakerOpenDesc, open)
		gauge(queueLengthDesc, float64(q.length()))
		gauge(queueMaxDesc, float64(q.bounds.Queue))
		if n.clock.known.Load() {
			gauge(clockOffsetDesc, time.Duration(n.clock.offset.Load()).Seconds())
		}
	}
}
