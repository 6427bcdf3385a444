package sink

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counts count what happened to lines.
type Counts struct {
	// Written were taken, Dropped found no room to wait, and Failed were refused by the
	// disk or the collector.
	Written, Dropped, Failed prometheus.Counter
}

// NewCounts returns the counts of a metric with the label result. All begin at 0.
func NewCounts(lines *prometheus.CounterVec) Counts {
	return Counts{Written: lines.WithLabelValues("written"), Dropped: lines.WithLabelValues("dropped"), Failed: lines.WithLabelValues("failed")}
}

// NewLines returns the metric for the lines of a sink.
func NewLines(metrics prometheus.Registerer, name, help string) *prometheus.CounterVec {
	return promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
}
