package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// decisions returns the series of decisions without their name and without
// empty labels.
func decisions(d *servertest.Daemon) map[string]float64 {
	found := make(map[string]float64)
	for series, value := range d.Metrics() {
		if labels, ok := strings.CutPrefix(series, "ratelimitd_decisions_total"); ok {
			found[strings.Replace(labels, `,value=""`, "", 1)] = value
		}
	}
	return found
}

func wantDecisions(d *servertest.Daemon, want map[string]float64) {
	d.T.Helper()
	if got := decisions(d); !maps.Equal(got, want) {
		d.T.Errorf("decisions:\n got %v\nwant %v", got, want)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	d.Ask("api", 5, "user=x")
	d.Ask("api", 1, "user=x") // denied
	d.Ask("unknown", 1, "user=x")
	_, _ = d.Try(servertest.Request("", 1, "user=x"))
	d.Post(servertest.BodyX)
	for _, body := range []string{"no request", `{"domain":""}`, strings.Repeat(" ", 1<<20)} {
		if p := d.Post(body); p.Code != 400 {
			t.Errorf("%.20q: %d", body, p.Code)
		}
	}
	d.Fetch(http.MethodGet, "http", "/json", nil) // asks nothing
	d.Check("")
	count := func(api, code, outcome string) string {
		return fmt.Sprintf("ratelimitd_requests_total{api=%q,code=%q,outcome=%q}", api, code, outcome)
	}
	d.WantMetrics(map[string]float64{
		count("grpc", "OK", "allowed"): 2, count("grpc", "OK", "denied"): 1, count("grpc", "OK", "peeked"): 0,
		count("grpc", "InvalidArgument", "error"): 1, count("grpc", "Unavailable", "error"): 0,
		count("http", "OK", "denied"): 1, count("http", "InvalidArgument", "error"): 3, count("http", "PermissionDenied", "error"): 0,
		`ratelimitd_request_duration_seconds_count{api="grpc"}`: 4,
	})
}

func TestFailedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(servertest.Failing("gone")))
	if _, err := d.Try(servertest.Request("api", 1, "user=x", "nothing=x")); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	d.Post(servertest.BodyX)
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="grpc",code="Unavailable",outcome="error"}`: 1,
		`ratelimitd_requests_total{api="http",code="Unavailable",outcome="error"}`: 1,
		`ratelimitd_unmatched_descriptors_total{domain="",result="allowed"}`:       0, // nothing was decided
	})
	wantDecisions(d, map[string]float64{})
}

const countedLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {requests: 3, period: 1h}}
  - key: user
    value: alice
    descriptors:
      - key: path
        value: /api/*
        rate_limits: [{name: a, requests: 10, period: 1h}, {name: b, requests: 1, period: 1h}]
  - {key: vip, rate_limit: {unlimited: true}}
  - {key: idle, rate_limit: {requests: 1, period: 1h}}
`

func TestDecisionsAreCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, countedLimits)
	wantDecisions(d, map[string]float64{}) // rules that never matched have no series
	d.Ask("api", 1, "user=mallory", "user=eve")
	d.Ask("api", 3, "user=mallory")                                   // denied
	d.Ask("api", 1, "user=bob", "user=alice,path=/api/a", "vip=root") // each descriptor counts by itself
	d.Ask("api", 1, "user=carl", "user=alice,path=/api/a")            // the second is denied, the first is not
	d.Ask("api", 1, "vip=root")
	d.Ask("api", 1, "nothing=evil", "user=alice,path=/other", "")
	d.Ask("evil", 1, "user=x")
	wantDecisions(d, map[string]float64{
		`{domain="api",result="allowed",rule="user"}`:                     4,
		`{domain="api",result="denied",rule="user"}`:                      1,
		`{domain="api",result="allowed",rule="user=alice / path=/api/*"}`: 1,
		`{domain="api",result="denied",rule="user=alice / path=/api/*"}`:  1,
		`{domain="api",result="allowed",rule="vip"}`:                      2,
		`{domain="api",result="denied",rule="vip"}`:                       0,
	})
	d.WantMetrics(map[string]float64{
		`ratelimitd_unmatched_descriptors_total{domain="api",result="allowed"}`: 3,
		`ratelimitd_unmatched_descriptors_total{domain="api",result="denied"}`:  0,
		`ratelimitd_unmatched_descriptors_total{domain="",result="allowed"}`:    1,
	})
	for _, secret := range []string{"mallory", "bob", "root", "evil", "/api/a", "/other"} {
		if strings.Contains(d.Get("admin", "/metrics").Body, secret) {
			t.Errorf("%q, which a caller sent, is a label", secret)
		}
	}
}

// Whoever tries unmatched: deny in shadow mode looks here for what it would deny.
func TestUnmatchedInShadowModeIsCounted(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, "domain: api\nunmatched: deny\ndescriptors:\n- {key: user, rate_limit: {requests: 1, period: 1h}}\n", members, func(o *server.Options) { o.Modes.Shadow = true })
	d.Ask("api", 1, "usr=x")
	d.WantMetrics(map[string]float64{
		`ratelimitd_unmatched_descriptors_total{domain="api",result="allowed"}`:  0,
		`ratelimitd_unmatched_descriptors_total{domain="api",result="denied"}`:   0,
		`ratelimitd_unmatched_descriptors_total{domain="api",result="shadowed"}`: 1,
	})
	domain := servertest.ReadMessage[adminv1.ListDomainsResponse](t, d.AskAdmin("GET", "/domains", "view", ""), 200).GetDomains()[0]
	if domain.GetUnmatchedCount() != 1 {
		t.Errorf("the admin API counts %v", domain)
	}
}

// TestCountsStayOverAReload keeps requests in flight under the old rules.
func TestCountsStayOverAReload(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting()
	d := servertest.Start(t, countedLimits, servertest.On(store))
	go func() { store.Release <- struct{}{} }()
	d.Ask("api", 1, "idle=x")
	d.Ask("api", 1, "vip=x")
	<-store.Taking
	answered := make(chan error, 1)
	go func() {
		_, err := d.Try(servertest.Request("api", 1, "user=x", "idle=x", "user=alice,path=/api/x"))
		answered <- err
	}()
	servertest.Within(t, "the store is asked", store.Taking)
	d.Reload(strings.ReplaceAll(strings.ReplaceAll(countedLimits, "idle", "new"), "1h", "1d"))
	close(store.Release)
	if err := servertest.Within(t, "the answer", answered); err != nil {
		t.Fatal(err)
	}
	d.Ask("api", 1, "user=y", "new=x", "idle=x")
	wantDecisions(d, map[string]float64{
		`{domain="api",result="allowed",rule="user"}`:                     2,
		`{domain="api",result="denied",rule="user"}`:                      0,
		`{domain="api",result="allowed",rule="user=alice / path=/api/*"}`: 1,
		`{domain="api",result="denied",rule="user=alice / path=/api/*"}`:  0,
		`{domain="api",result="allowed",rule="vip"}`:                      1,
		`{domain="api",result="denied",rule="vip"}`:                       0,
		`{domain="api",result="allowed",rule="new"}`:                      1,
		`{domain="api",result="denied",rule="new"}`:                       0,
	})
}

func TestReloadsAreCounted(t *testing.T) {
	t.Parallel()
	before := float64(time.Now().UnixMilli()) / 1000
	d := servertest.Start(t, countedLimits)
	want := func(successes, failures, successful, rules float64) {
		t.Helper()
		d.WantMetrics(map[string]float64{
			`ratelimitd_limits_reloads_total{result="success"}`: successes,
			`ratelimitd_limits_reloads_total{result="failure"}`: failures,
			`ratelimitd_limits_last_reload_successful`:          successful,
			`ratelimitd_limits_rules`:                           rules,
		})
	}
	at := func() float64 { return d.Metrics()["ratelimitd_limits_last_reload_success_timestamp_seconds"] }
	want(1, 0, 1, 4)
	first := at()
	if now := float64(time.Now().UnixMilli()) / 1000; first < before || first > now {
		t.Errorf("loaded at %f, which is not from %f to %f", first, before, now)
	}
	d.Write("domain: api\nbad: 1\n")
	if d.Live.Reload() == nil {
		t.Fatal("no error")
	}
	want(1, 1, 0, 4)
	if at() != first {
		t.Error("a failure moved the time of the last success")
	}
	d.Reload(servertest.OneLimit)
	want(2, 1, 1, 1)
	if at() < first {
		t.Error("the time of the last success went back")
	}
}

// TestDecisionsAreCountedByValue loads rules that ask for counts by value, and
// one that does not.
func TestDecisionsAreCountedByValue(t *testing.T) {
	t.Parallel()
	const limits = `domain: api
descriptors:
- key: user
  descriptors:
  - {key: path, value: "/a*", value_to_metric: true, rate_limit: {requests: 1, period: 1h}}
  - {key: path, detailed_metric: true, value_to_metric: true, rate_limit: {requests: 1, period: 1h}}
- {key: user, value: x, rate_limit: {requests: 9, period: 1h}}
- {key: q, value_to_metric: true, rate_limit: {requests: 9, period: 1h}}
`
	d := servertest.Start(t, limits)
	d.Ask("api", 1, "user=w,path=/ab", "user=y,path=/b", "user=x")
	d.Ask("api", 1, "user=w,path=/ab")
	d.Ask("api", 1, "user=w,path=/ac")
	d.Ask("api", 1, "q=", "q=other")
	want := map[string]float64{
		`{domain="api",result="allowed",rule="user / path=/a*",value="/ab"}`:        1,
		`{domain="api",result="denied",rule="user / path=/a*",value="/ab"}`:         1,
		`{domain="api",result="allowed",rule="user / path=/a*",value="/ac"}`:        1,
		`{domain="api",result="denied",rule="user / path=/a*",value="/ac"}`:         0,
		`{domain="api",result="allowed",rule="user / path",value="user=y/path=/b"}`: 1,
		`{domain="api",result="denied",rule="user / path",value="user=y/path=/b"}`:  0,
		`{domain="api",result="allowed",rule="user=x"}`:                             1,
		`{domain="api",result="denied",rule="user=x"}`:                              0,
		`{domain="api",result="allowed",rule="q"}`:                                  1,
		`{domain="api",result="denied",rule="q"}`:                                   0,
		`{domain="api",result="allowed",rule="q",value="other"}`:                    1,
		`{domain="api",result="denied",rule="q",value="other"}`:                     0,
	}
	wantDecisions(d, want)
	d.Reload(limits + "- {key: new, rate_limit: {unit: day}}\n")
	wantDecisions(d, want)
}

func TestOverridesAreCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, countedLimits)
	d.Override(1, "user=x", "1/HOUR")
	d.Override(1, "user=x", "1/HOUR")
	d.Override(1, "vip=x", "0/HOUR")
	d.Override(1, "nothing=x", "1/MINUTE")
	d.Override(1, "nothing=x", "1/MINUTE")
	d.Override(1, "nothing=y", "1/MINUTE")
	wantDecisions(d, map[string]float64{
		`{domain="api",result="allowed",rule="user"}`: 1,
		`{domain="api",result="denied",rule="user"}`:  1,
		`{domain="api",result="allowed",rule="vip"}`:  0,
		`{domain="api",result="denied",rule="vip"}`:   1,
	})
	d.WantMetrics(map[string]float64{
		`ratelimitd_override_decisions_total{result="allowed"}`:              2,
		`ratelimitd_override_decisions_total{result="denied"}`:               1,
		`ratelimitd_unmatched_descriptors_total{domain="",result="allowed"}`: 0,
	})
}

// Prometheus gets classic buckets in text, and native ones beside them in protobuf.
func TestDurationsHaveBothKindsOfBuckets(t *testing.T) {
	t.Parallel()
	var registry *prometheus.Registry
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) { registry = o.Metrics })
	d.Ask("api", 1, "user=x")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); f.GetName() == "ratelimitd_request_duration_seconds" && m.GetLabel()[0].GetValue() == "grpc" {
				if h.GetSampleCount() != 1 || len(h.GetBucket()) != 15 || h.GetSchema() != 3 || len(h.GetPositiveSpan()) != 1 {
					t.Errorf("got %v", h)
				}
				return
			}
		}
	}
	t.Error("there is no histogram")
}
