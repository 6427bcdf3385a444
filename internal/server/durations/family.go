package durations

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Family is a metric with a histogram for each value of a label.
type Family struct {
	desc *prometheus.Desc

	mu  sync.Mutex
	all []*Histogram
}

// New returns a family without a histogram.
func New(name, help, label string) *Family {
	return &Family{desc: prometheus.NewDesc(name, help, []string{label}, nil)}
}

// Histogram returns a new histogram for a value of the label, which must have none yet.
func (f *Family) Histogram(value string) *Histogram {
	h := &Histogram{desc: f.desc, labels: prometheus.MakeLabelPairs(f.desc, []string{value}), since: time.Now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, h)
	return h
}

// Describe implements prometheus.Collector.
func (f *Family) Describe(out chan<- *prometheus.Desc) { out <- f.desc }

// Collect implements prometheus.Collector.
func (f *Family) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.all {
		out <- h
	}
}
