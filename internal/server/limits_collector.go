package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

// limitsCollector shows the loads of the limits files and the counts of the rules
// in force. The number of series is bounded: a rule that never matched has none,
// rules that are counted by value have a bounded number of them, and the series of
// a rule go with it at a reload.
type limitsCollector struct {
	live *config.Live

	decisions, reloads, successful, succeededAt, rules *prometheus.Desc
}

func newLimitsCollector(live *config.Live) *limitsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimitd_"+name, help, labels, nil)
	}
	return &limitsCollector{
		live: live,
		decisions: desc("decisions_total",
			"Descriptors that matched a rule, by what they got themselves, whatever the others of their request did. Rules that never matched have no series.",
			"domain", "rule", "value", "result"),
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
	for _, d := range []*prometheus.Desc{c.decisions, c.reloads, c.successful, c.succeededAt, c.rules} {
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
	st, rules := c.live.Status(), c.live.Rules()
	counter(c.reloads, float64(st.Succeeded), "success")
	counter(c.reloads, float64(st.Failed), "failure")
	gauge(c.successful, oneIf(st.LastError == nil))
	if st.Succeeded > 0 {
		gauge(c.succeededAt, float64(st.SucceededAt.UnixMilli())/float64(time.Second/time.Millisecond))
	}
	if rules == nil {
		gauge(c.rules, 0)
		return
	}
	gauge(c.rules, float64(rules.Count()))
	decisions := func(domain *config.Domain, rule *config.Rule, value string, counts *config.Counts) {
		allowed, denied, shadowed := counts.Of(config.Allowed), counts.Of(config.Denied), counts.Of(config.Shadowed)
		if allowed == 0 && denied == 0 && shadowed == 0 {
			return
		}
		// All of them from the first, so that each first event is an increase.
		path := rule.Path()
		counter(c.decisions, float64(allowed), domain.Name, path, value, config.Allowed.String())
		counter(c.decisions, float64(denied), domain.Name, path, value, config.Denied.String())
		if shadowed > 0 || rule.ShadowMode {
			counter(c.decisions, float64(shadowed), domain.Name, path, value, config.Shadowed.String())
		}
	}
	for _, domain := range rules.Domains() {
		for _, rule := range domain.Rules() {
			decisions(domain, rule, "", &rule.Counts.Counts)
			for _, n := range rule.Counts.Values() {
				decisions(domain, rule, n.Value, n.Counts)
			}
		}
	}
}
