package server_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// The numbers of a limit are there with its other series, for as many rules.
func TestNumbersOfLimitsAreMetrics(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - key: user
    rate_limits: [{name: short, requests: 5, period: 1500ms}, {name: month, requests: 9, calendar: month}]
  - {key: job, rate_limit: {algorithm: concurrency, requests: 3, hold: 1m}}
  - {key: other, rate_limit: {requests: 1, period: 1s}}
  - {key: unused, rate_limit: {requests: 1, period: 1s}}
`, func(o *server.Options) { o.MaxRules = 2 })
	for _, asked := range []string{"user=a", "job=a", "other=a"} {
		d.Ask("api", 1, asked)
	}
	want := map[string]float64{
		`ratelimitd_limit_requests{domain="api",limit="short",rule="user"}`:       5,
		`ratelimitd_limit_requests{domain="api",limit="month",rule="user"}`:       9,
		`ratelimitd_limit_requests{domain="api",limit="",rule="job"}`:             3,
		`ratelimitd_limit_period_seconds{domain="api",limit="short",rule="user"}`: 1.5,
	}
	got := make(map[string]float64)
	for series, value := range d.Metrics() {
		if strings.HasPrefix(series, "ratelimitd_limit_requests{") || strings.HasPrefix(series, "ratelimitd_limit_period_seconds{") {
			got[series] = value
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
