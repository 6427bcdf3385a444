package integration

import (
	"reflect"
	"slices"
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

// The daemon's headers pass through Envoy on served and denied requests.
// Beside Envoy's own, x-ratelimit would put two values under each name.
func TestHeadersOfEachStylePassThroughEnvoy(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", usersOf2)
	b := startBackend(t)
	const own = "\nenable_x_ratelimit_headers: DRAFT_VERSION_03"
	for _, tc := range []struct {
		style  string
		name   string
		values [3]string // of three requests
		beside []string  // headers of a first request, beside Envoy's own
	}{
		{"ratelimit", "ratelimit-remaining", [3]string{"1", "0", "0"}, []string{"1"}},
		{"x-ratelimit", "x-ratelimit-remaining", [3]string{"1", "0", "0"}, []string{"1", "1"}},
		{"ietf", "ratelimit-policy", [3]string{`"twice";q=2;w=86400`, `"twice";q=2;w=86400`, `"twice";q=2;w=86400`}, []string{`"twice";q=2;w=86400`}},
	} {
		t.Run(tc.style, func(t *testing.T) {
			d := start(t, "--limits-path", dir, "--headers-style", tc.style)
			e := startEnvoy(t, configure(t, []front{
				{Name: "alone", Filter: patiently, Routes: userRoutes},
				{Name: "beside", Filter: patiently + own, Routes: userRoutes},
			}, ratelimitdAt(d.grpc), b.cluster()))
			for i, status := range []int{200, 200, 429} {
				a := e.get("alone", "/", "x-user: alone")
				if got := a.header.Values(tc.name); a.status != status || !slices.Equal(got, []string{tc.values[i]}) {
					t.Errorf("request %d gives %d with %s %q, want %d with %q", i+1, a.status, tc.name, got, status, tc.values[i])
				}
			}
			a := e.get("beside", "/", "x-user: beside")
			if a.header.Get("x-ratelimit-limit") == "" {
				t.Errorf("Envoy adds no header of its own: %v", a.header)
			}
			if got := a.header.Values(tc.name); !slices.Equal(got, tc.beside) {
				t.Errorf("beside Envoy's own, %s is %q, want %q", tc.name, got, tc.beside)
			}
		})
	}
}

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
