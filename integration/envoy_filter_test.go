package integration

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// userRoutes limits each user on any path.
const userRoutes = `
- match: {prefix: /}
  route:
    cluster: backend
    rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]
`

// usersOf2 lets each user pass twice.
const usersOf2 = `
domain: envoy
descriptors:
  - key: user
    rate_limit: {name: twice, algorithm: sliding_log, requests: 2, period: 1d}
  - key: user
    value: two-limits
    rate_limits:
      - {name: hourly, algorithm: sliding_log, requests: 5, period: 1h}
      - {name: odd, algorithm: sliding_log, requests: 3, period: 90s}
`

// Envoy can log the metadata of the daemon.
func TestEnvoyLogsTheDaemonsMetadata(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", usersOf2)
	b := startBackend(t)
	d := start(t, "--limits-path", dir, "--api-dynamic-metadata")
	e := startEnvoy(t, configure(t, []front{{
		Name: "metadata", Filter: patiently, Routes: userRoutes,
		Log: "%RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%",
	}}, ratelimitdAt(d.grpc), b.cluster()))
	e.statuses(3, "metadata", "/", "x-user: alice")
	var lines []string
	asynctest.Eventually(t, "Envoy logs", func() bool {
		lines = e.logged("metadata")
		return len(lines) == 3
	})
	for i, line := range lines {
		status, text, _ := strings.Cut(line, " ")
		if want := []string{"200", "200", "429"}[i]; status != want {
			t.Errorf("line %d is %q, want the status %s", i+1, line, want)
		}
		m := decodeJSON(t, text)
		first := m["descriptors"].([]any)[0].(map[string]any)
		if m["domain"] != "envoy" || !reflect.DeepEqual(first["entries"], []any{"user=alice"}) {
			t.Errorf("line %d is %q", i+1, line)
		}
	}
}
