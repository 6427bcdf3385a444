//go:build !race

package server_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

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
