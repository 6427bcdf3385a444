package integration

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// exposed adds the names and types of the daemon's metrics to found, and checks
// the help texts.
func (d *daemon) exposed(found map[string]string) {
	d.t.Helper()
	// Some metrics have no series before.
	d.ask("api", 1, "user=alice")
	for _, entries := range [][]string{{"user=alice"}, {"worker=pool", "job=1"}} {
		refund := request("api", 1, entries...)
		refund.Descriptors[0].IsNegativeHits = true
		if _, err := d.client.ShouldRateLimit(d.t.Context(), refund); err != nil {
			d.t.Fatal(err)
		}
	}
	const alice = `"domain":"api","id":"one","descriptors":[{"entries":[{"key":"user","value":"alice"}],"cost":`
	for _, c := range []struct{ path, cost string }{{"/v1/take", "2"}, {"/v1/settle", "1"}} {
		r, err := http.Post("http://"+d.http+c.path, "application/json", strings.NewReader("{"+alice+c.cost+"}]}"))
		if err != nil {
			d.t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	code, page := get(d.t, "http://"+d.admin+"/metrics")
	if code != 200 {
		d.t.Fatalf("/metrics: %d %s", code, page)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (ratelimitd?_\S+) (\S+)$`).FindAllStringSubmatch(page, -1) {
		found[m[1]] = m[2]
		if !strings.Contains(page, "# HELP "+m[1]+" ") {
			d.t.Errorf("%s has no help", m[1])
		}
	}
	for _, other := range []string{"\ngo_goroutines ", "\nprocess_cpu_seconds_total "} {
		if !strings.Contains(page, other) {
			d.t.Errorf("there is no%q", other)
		}
	}
}

// docs/metrics.md lists exactly the metrics that daemons show on either store.
func TestDocumentedMetricsAreThoseShown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(ratelimitd?_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(m[1], "ratelimitd_xds_") { // which integration/xds looks at
			told[m[1]] = m[2]
		}
	}
	shown := make(map[string]string)
	startAuth(t, "nginx").exposed(shown)
	limits := t.TempDir()
	if err := os.CopyFS(limits, os.DirFS("../deploy/limits")); err != nil {
		t.Fatal(err)
	}
	write(t, limits, "pauses.yaml", "domain: pauses\ndescriptors: [{key: login, rate_limit: {requests: 1, period: 1d, burst: 1, block_for: 1h}}]\n")
	collector := otlptest.Start(t).HTTP
	redis := append(redisFlags("single", redistest.Single(t)), "--limits-path", limits, "--tracing-enabled", "--tracing-endpoint", collector,
		"--decisions-path", filepath.Join(t.TempDir(), "decisions.jsonl"), "--decisions-otlp-endpoint", collector,
		"--admin-tokens-file", write(t, t.TempDir(), "tokens.yaml", "[]\n"))
	d := start(t, append(redis, "--metrics-names", "envoyproxy")...)
	for range 2 {
		d.ask("pauses", 1, "login=x") // the second starts a pause
	}
	d.exposed(shown)
	if !maps.Equal(told, shown) {
		t.Errorf("docs/metrics.md tells of\n%v\ndaemons show\n%v", told, shown)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		// Those of another service are as they are.
		if strings.HasPrefix(name, "ratelimitd_") && strings.HasSuffix(name, "_total") != (shown[name] == "counter") {
			t.Errorf("%s is a %s", name, shown[name])
		}
	}
}
