package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// limitsCollector shows the loads of the limits files. What rules count is in
// families, since there may be much of it.
type limitsCollector struct {
	live *rules.Live
	// unknownDomains counts the descriptors of unknown domains.
	unknownDomains atomic.Uint64

	reloads, successful, succeededAt, rules *prometheus.Desc
}

func newLimitsCollector(live *rules.Live) *limitsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimitd_"+name, help, labels, nil)
	}
	return &limitsCollector{
		live: live,
		reloads: desc("limits_reloads_total",
			"Loads of the limits files, that at start included. One that ends as the one before did, with the same rules or the same errors, is not counted.",
			"result"),
		successful:  desc("limits_last_reload_successful", "1 if the limits files, as they are, are in force; 0 while they have errors and older rules stay in force."),
		succeededAt: desc("limits_last_reload_success_timestamp_seconds", "When the limits files were last loaded without an error."),
		rules:       desc("limits_rules", "Rules in force, in all domains."),
	}
}

// Describe implements prometheus.Collector.
func (c *limitsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reloads, c.successful, c.succeededAt, c.rules} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *limitsCollector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	st := c.live.Status()
	counter(c.reloads, float64(st.Succeeded), "success")
	counter(c.reloads, float64(st.Failed), "failure")
	gauge(c.successful, oneIf(st.LastError == nil))
	if st.Succeeded > 0 {
		gauge(c.succeededAt, float64(st.SucceededAt.UnixMilli())/float64(time.Second/time.Millisecond))
	}
	inForce := 0
	if rules := c.live.Rules(); rules != nil {
		inForce = rules.Count()
	}
	gauge(c.rules, float64(inForce))
}
