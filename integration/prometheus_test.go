package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// prometheus is a real one that scrapes a daemon.
type prometheus struct {
	t       testing.TB
	address string
}

// startPrometheus runs Prometheus until the test ends, with these features on. It
// scrapes the target, with the label that Kubernetes has for Envoy Gateway's pod.
func startPrometheus(t testing.TB, target string, features ...string) *prometheus {
	t.Helper()
	return startPrometheusOn(t, write(t, t.TempDir(), "prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: ratelimit
    static_configs: [{targets: [%q], labels: {app_kubernetes_io_component: ratelimit}}]
`, target)), features...)
}

// startPrometheusOn runs Prometheus by a file of configuration until the test ends, with
// these features on.
func startPrometheusOn(t testing.TB, config string, features ...string) *prometheus {
	t.Helper()
	binary, address := needProxy(t, "prometheus"), freeAddress(t)
	startProxy(t, address, exec.Command(binary, "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"), "--log.level=warn", "--enable-feature="+strings.Join(features, ",")))
	return &prometheus{t, address}
}

// query returns the values of a query's series as text, or that it has none yet.
func (p *prometheus) query(text string) (values []string) {
	p.t.Helper()
	response, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(text))
	if err != nil {
		return nil // it has only begun to listen
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if response.StatusCode == http.StatusServiceUnavailable {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s: %d %s %v", text, response.StatusCode, answer.Error, err)
	}
	for _, r := range answer.Data.Result {
		values = append(values, r.Value[1].(string))
	}
	return values
}

// wantValue waits until the query has a single series with this value.
func (p *prometheus) wantValue(text, want string) {
	p.t.Helper()
	asynctest.Eventually(p.t, text+" is "+want, func() bool {
		values := p.query(text)
		return len(values) == 1 && values[0] == want
	})
}

// queries returns the fenced blocks of a page that have no language and ask for a rate.
func queries(t testing.TB, page string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split("\n"+string(text), "\n```") {
		query, isPlain := strings.CutPrefix(part, "\n")
		if i%2 == 1 && isPlain && strings.Contains(query, "[") {
			found = append(found, query)
		}
	}
	return found
}

// Every query of the documentation finds something in a daemon that was asked.
func TestDocumentedQueriesFindSomething(t *testing.T) {
	t.Parallel()
	needProxy(t, "prometheus")
	dir := t.TempDir()
	write(t, dir, "limits.yaml", `
domain: api
descriptors:
  - key: user
    rate_limits: [{name: real, requests: 2, period: 365d}, {name: candidate, requests: 1, period: 365d, shadow_mode: true}]
`)
	d := start(t, append(redisFlags("single", redistest.Single(t)), "--limits-path", dir)...)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(stop)
	asking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_, _ = d.tryAsk("api", 1, fmt.Sprintf("user=%d", i/4))
			}
		}
	})
	native := startPrometheus(t, d.admin, "native-histograms")
	classic := startPrometheus(t, d.admin)
	all := queries(t, "docs/metrics.md")
	if len(all) < 3 {
		t.Errorf("the page has %d queries", len(all))
	}
	for _, query := range all {
		p := classic
		if strings.Contains(query, "duration_seconds[") {
			p = native
		}
		asynctest.Eventually(t, query+" finds something", func() bool {
			// APIs that nobody asked have no quantile.
			return slices.ContainsFunc(p.query(query), func(value string) bool { return value != "NaN" })
		})
	}
}

// The trace of a sampled request is beside the time that it took.
func TestPrometheusHasExemplars(t *testing.T) {
	t.Parallel()
	needProxy(t, "prometheus")
	d := startTraced(t, otlptest.Start(t), nil)
	if _, err := d.client.ShouldRateLimit(withParent(t, aSampled), request("api", 1, "user=a")); err != nil {
		t.Fatal(err)
	}
	for _, features := range [][]string{{"exemplar-storage"}, {"exemplar-storage", "native-histograms"}} {
		p := startPrometheus(t, d.admin, features...)
		p.wantValue(`count(up)`, "1")
		asynctest.Eventually(t, "there is an exemplar", func() bool {
			code, text := get(t, "http://"+p.address+"/api/v1/query_exemplars?start=0&end=9999999999&query="+url.QueryEscape(`{__name__=~"ratelimitd_request_duration_seconds.*"}`))
			return code == http.StatusOK && strings.Contains(text, `"trace_id":"`+strings.Split(aSampled, "-")[1]+`"`)
		})
	}
}

// gatewayRoute is a route by the name that Envoy Gateway gives it, and
// gatewayLimits are limits as Envoy Gateway makes them.
const (
	gatewayRoute  = "httproute/default/http-ratelimit/rule/0/match/0/www_example_com"
	gatewayLimits = `
domain: default/eg/http
descriptors:
  - key: ` + gatewayRoute + `
    value: ` + gatewayRoute + `
    descriptors:
      - {key: rule-0-match-0, value: rule-0-match-0, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: masked_remote_address, value: 0.0.0.0/0, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: masked_remote_address, value: 'invert:192.0.2.0/24', rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: header_x-user-id, value: one, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
      - key: rule-1-match-0
        value: rule-1-match-0
        shadow_mode: true
        descriptors:
          - {key: masked_remote_address, value: 10.0.0.0/8, rate_limit: {unit: hour, requests_per_unit: 3}}
`
)

// TestPrometheusFindsWhatEnvoyGatewayAsksFor runs the queries of Envoy Gateway's
// dashboard "Global Ratelimit" and of its end-to-end tests.
func TestPrometheusFindsWhatEnvoyGatewayAsksFor(t *testing.T) {
	t.Parallel()
	needProxy(t, "prometheus")
	root, _ := runtimeRoot(t, gatewayLimits)
	d := startAsEnvoy(t, envoyEnv(root, "BACKEND_TYPE=memory", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml"))
	if d.metrics == "" {
		t.Fatal("there is no port for Prometheus")
	}
	p := startPrometheus(t, d.metrics)
	// Each limit of 3 is asked for 5, one after the other.
	for _, below := range []string{
		"rule-0-match-0=rule-0-match-0", "masked_remote_address=0.0.0.0/0", "masked_remote_address=invert:192.0.2.0/24",
		"header_x-user-id=one", "user=alice", "rule-1-match-0=rule-1-match-0,masked_remote_address=10.0.0.0/8",
	} {
		for i := range 5 {
			entries := append([]string{gatewayRoute + "=" + gatewayRoute}, strings.Split(below, ",")...)
			if r := d.ask("default/eg/http", 1, entries...); ok(r) != (i < 3 || below == "header_x-user-id=one") {
				t.Errorf("%s: request %d: %v", below, i+1, r)
			}
		}
	}
	const dashboard = `ratelimit_service_rate_limit_%s{domain="default/eg/http", key1="` + gatewayRoute + `_` + gatewayRoute + `", key2="rule-0-match-0_rule-0-match-0"}`
	for part, want := range map[string]string{"total_hits": "5", "within_limit": "3", "over_limit": "2", "near_limit": "1", "shadow_mode": "0"} {
		p.wantValue(fmt.Sprintf(dashboard, part), want)
	}
	for _, key2 := range []string{"masked_remote_address_0_0_0_0/0", "masked_remote_address_invert_192_0_2_0/24", "header_x-user-id_one", "user"} {
		p.wantValue(fmt.Sprintf(`ratelimit_service_rate_limit_over_limit{key2=%q}`, key2), "2")
	}
	p.wantValue(`ratelimit_service_rate_limit_shadow_mode{key2="header_x-user-id_one"}`, "2")
	p.wantValue(`ratelimit_service_rate_limit_over_limit{key2="rule-1-match-0_rule-1-match-0.masked_remote_address_10_0_0_0/8"}`, "2")
	p.wantValue(`sum(ratelimit_service_rate_limit_over_limit{key2=~"rule-1-match-0_rule-1-match-0([.].*)?"})`, "2")
	p.wantValue(`count({__name__=~"ratelimit_service_rate_limit_.*"})`, "30")
	p.wantValue(`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}`, "30")
	p.wantValue(`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}`, "30")
	p.wantValue(`ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} > bool 0`, "1") // whole milliseconds would be none
	p.wantValue(`sum(ratelimit_service_should_rate_limit_error{err_type=~"redis_error|service_error"})`, "0")
	p.wantValue(`ratelimit_service_config_load_success`, "1")
	p.wantValue(`ratelimit_service_config_load_error`, "0")
	for _, process := range []string{"process_resident_memory_bytes", "process_virtual_memory_bytes"} {
		p.wantValue(process+`{app_kubernetes_io_component="ratelimit"} > bool 0`, "1")
	}
	p.wantValue(`go_memstats_gc_cpu_fraction{app_kubernetes_io_component="ratelimit"} >= bool 0`, "1")
	// The daemon's own are beside them.
	p.wantValue(`sum(ratelimitd_decisions_total{domain="default/eg/http", result="denied"})`, "10")
}
