package limitsfile_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// manyLists are files of 100,000 rules of several shapes.
var manyLists = []struct {
	name string
	text func() string
}{
	{"nested", func() string { return limitstest.ManyRules(100_000) }},
	{"flat", func() string {
		return listText(100_000, "- key: user\n  value: u%d\n  rate_limit:\n    unit: minute\n    requests_per_unit: 10\n")
	}},
	{"one-line", func() string {
		return listText(100_000, "- {key: user, value: u%d, rate_limit: {requests: 10, period: 60s, burst: 20}}\n")
	}},
	{"patterns", func() string {
		return listText(100_000, "- key: path%[1]d\n  value: /service%[1]d/*\n  rate_limit: {requests: 1, period: 1s}\n")
	}},
	{"json", func() string {
		list := listText(99_999, "{\"key\": \"user\", \"value\": \"u%d\", \"rate_limit\": {\"unit\": \"minute\", \"requests_per_unit\": 10}},\n")
		return strings.Replace(list, "domain: d\ndescriptors:\n", "{\"domain\": \"d\", \"descriptors\": [\n", 1) + "{\"key\": \"last\", \"rate_limit\": {\"unit\": \"day\"}}\n]}\n"
	}},
	{"flags", func() string {
		return listText(100_000, "- key: user\n  value: u%d\n  shadow_mode: true\n  metadata: {tier: free}\n  rate_limit: {name: a, requests: 1, period: 1s, replaces: [{name: b}]}\n") +
			"- {key: b, rate_limit: {name: b, unit: day}}\n"
	}},
}

func listText(n int, item string) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&s, item, i)
	}
	return s.String()
}

const heapObjects = "/memory/classes/heap/objects:bytes"

func heapBytes(sample []metrics.Sample) uint64 {
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// growth runs a function and returns by how much the objects on the heap grew
// at most, garbage that was not collected yet included, and by how much they
// have grown when nothing else is left.
func growth(f func()) (peak, live int64) {
	sample := []metrics.Sample{{Name: heapObjects}}
	runtime.GC()
	debug.FreeOSMemory()
	before := heapBytes(sample)
	stop, peaks := make(chan struct{}), make(chan uint64)
	go func() {
		own := []metrics.Sample{{Name: heapObjects}}
		var max uint64
		for {
			if n := heapBytes(own); n > max {
				max = n
			}
			select {
			case <-stop:
				peaks <- max
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	peak = int64(<-peaks) - int64(before)
	runtime.GC()
	return peak, int64(heapBytes(sample)) - int64(before)
}

func BenchmarkLoad(b *testing.B) {
	for _, list := range manyLists {
		b.Run(list.name, func(b *testing.B) {
			path := filetest.Write(b, b.TempDir(), "limits.yaml", list.text())
			b.ReportAllocs()
			var peak, live int64
			for b.Loop() {
				var r *rules.Set
				p, l := growth(func() {
					var err error
					if r, err = limitsfile.Load(path); err != nil {
						b.Fatal(err)
					}
				})
				peak, live = max(peak, p), l/int64(r.Count())
				runtime.KeepAlive(r)
			}
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
			b.ReportMetric(float64(live), "live-B/rule")
		})
	}
}
