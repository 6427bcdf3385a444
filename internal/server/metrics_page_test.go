package server_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// manySeries is a server whose page has more than 200,000 series, half of them of
// values that callers chose.
func manySeries(t testing.TB) *server.Server {
	const rules, values, byValue = 18_000, 1000, 15
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for i := range byValue {
		fmt.Fprintf(&limits, "- {key: path%d, value_to_metric: true, rate_limit: {requests: 1, period: 1h}}\n", i)
	}
	for i := range rules {
		fmt.Fprintf(&limits, "- {key: user, value: u%d, rate_limit: {requests: 1, period: 1h}}\n", i)
	}
	s := servertest.Start(t, limits.String(), likeEnvoyproxy).Server
	ask := func(descriptor string) {
		if _, err := s.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, descriptor)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rules {
		ask(fmt.Sprintf("user=u%d", i))
	}
	for i := range byValue {
		for j := range values {
			ask(fmt.Sprintf("path%d=/orders/%d", i, j))
		}
	}
	return s
}

// lineCounter counts the lines of a page, and throws it away.
type lineCounter struct {
	header http.Header
	lines  int
}

func (c *lineCounter) Header() http.Header { return c.header }

func (c *lineCounter) WriteHeader(int) {}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// A page of 200,000 series takes at most 8 MiB while it is written, which is no more
// than all that it allocates.
func TestPageOfManySeriesTakesLittleMemory(t *testing.T) {
	pages := manySeries(t).Admin()
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, header := range map[string]http.Header{
		"text":        {},
		"gzip":        {"Accept-Encoding": {"gzip"}},
		"OpenMetrics": {"Accept": {"application/openmetrics-text;version=1.0.0"}},
		"protobuf":    {"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header = header
		const maxBytes = 8 << 20
		var w *lineCounter
		n := uint64(math.MaxUint64)
		for range 3 { // what else the process does allocates too
			w = &lineCounter{header: make(http.Header)}
			if n = min(n, allocated(func() { pages.ServeHTTP(w, r) })); n <= maxBytes {
				break
			}
		}
		if n > maxBytes {
			t.Errorf("%s: a page allocates %d bytes, more than %d", name, n, maxBytes)
		} else {
			t.Logf("%s: %d bytes", name, n)
		}
		if name == "text" && w.lines < 200_000 {
			t.Errorf("the page has %d series", w.lines)
		}
	}
}
