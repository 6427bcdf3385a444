package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
)

// prometheus is a real one that scrapes a daemon.
type prometheus struct {
	t       testing.TB
	address string
}

// startPrometheus runs Prometheus until the test ends. It scrapes the target, with
// the label that Kubernetes has for Envoy Gateway's pod.
func startPrometheus(t testing.TB, target string) *prometheus {
	t.Helper()
	binary, dir, address := needProxy(t, "prometheus"), t.TempDir(), freeAddress(t)
	config := write(t, dir, "prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: ratelimit
    static_configs: [{targets: [%q], labels: {app_kubernetes_io_component: ratelimit}}]
`, target))
	startProxy(t, address, exec.Command(binary, "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--log.level=warn"))
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
	// The daemon's own are beside them.
	p.wantValue(`sum(ratelimitd_decisions_total{domain="default/eg/http", result="denied"})`, "10")
}
