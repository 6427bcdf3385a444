// Package clientmetrics shows the counts of a client to Prometheus.
//
//	prometheus.MustRegister(clientmetrics.New(limiter))
package clientmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/client"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ratelimitd_client_"+name, help, labels, nil)
}

var (
	requests = desc("requests_total", "Requests by how they were decided: by the daemon (allowed, denied), by a denial that the client may repeat (leased_denied), or by the failure choice (failed_*). Those that leases allowed are in leased_units_total.", "decision")
	leases   = desc("leases_total", "Leases that the daemon granted.")
	leased   = desc("leased_units_total", "Units of leases that were used.")
	returned = desc("returned_units_total", "Units of leases that were given back.")
	lost     = desc("lost_total", "Give-backs, settlements and releases that failed or may have failed.", "what")
	alone    = desc("alone_total", "Requests that were sent in calls of their own, because streams did not get through.")
	streams  = desc("streams", "Streams that are open.")
)

// collector shows the Stats of a client.
type collector struct{ client *client.Client }

// New returns a collector of the client's Stats. Two clients of a process need labels: see
// prometheus.WrapRegistererWith.
func New(c *client.Client) prometheus.Collector { return collector{c} }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requests, leases, leased, returned, lost, alone, streams} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.client.Stats()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(requests, s.Allowed, "allowed")
	count(requests, s.Denied, "denied")
	count(requests, s.LeasedDenied, "leased_denied")
	count(requests, s.FailedAllowed, "failed_allowed")
	count(requests, s.FailedDenied, "failed_denied")
	count(requests, s.FailedLocal, "failed_local")
	count(requests, s.FailedError, "failed_error")
	count(leases, s.Leases)
	count(leased, s.Leased)
	count(returned, s.LeaseReturned)
	count(lost, s.LostGiveBacks, "give_back")
	count(lost, s.LostSettlements, "settlement")
	count(lost, s.LostReleases, "release")
	count(alone, s.Alone)
	to <- prometheus.MustNewConstMetric(streams, prometheus.GaugeValue, float64(s.Streams))
}
