package servertest

import (
	"strconv"
	"strings"
	"testing"
)

// Metrics returns the samples of /metrics by their series,
// name{label="value",...}.
func (d *Daemon) Metrics() map[string]float64 {
	d.T.Helper()
	p := d.Get("admin", "/metrics")
	if p.Code != 200 || !strings.HasPrefix(p.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		d.T.Fatalf("/metrics: %d %s", p.Code, p.Header.Get("Content-Type"))
	}
	return Samples(d.T, p.Body)
}

// Samples returns the samples of a page of metrics by their series.
func Samples(t testing.TB, page string) map[string]float64 {
	t.Helper()
	found := make(map[string]float64)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[line[:at]] = value
	}
	return found
}

// WantMetric fails the test unless /metrics has a series with a value.
func (d *Daemon) WantMetric(series string, want float64) {
	d.T.Helper()
	d.WantMetrics(map[string]float64{series: want})
}

// WantMetrics fails the test unless /metrics has each series with its value.
func (d *Daemon) WantMetrics(want map[string]float64) {
	d.T.Helper()
	got := d.Metrics()
	for series, value := range want {
		if v, ok := got[series]; !ok || v != value {
			d.T.Errorf("%s is %v (shown: %t), want %v", series, v, ok, value)
		}
	}
}
