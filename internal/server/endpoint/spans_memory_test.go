package endpoint_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// While the collector hangs, as many spans wait as may, each as large as a caller can
// make it. docs/tracing.md tells operators the bound, which is larger by the size of
// sixteen long rule paths and sixteen batches.
func TestSpansThatWaitHoldBoundedMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		values bool
		bound  int64 // of a span, in bytes
	}{{"by default", false, 6 << 10}, {"with values", true, 10 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			release := make(chan struct{})
			hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
			t.Cleanup(hangs.Close)
			t.Cleanup(func() { close(release) })
			const spans = 512
			d := startTraced(t, 1, func(o *tracing.Options, _ *server.Options) {
				o.Endpoint, o.Values = hangs.URL, c.values
				o.Environment = func(name string) string {
					switch name {
					case "OTEL_BSP_MAX_QUEUE_SIZE":
						return strconv.Itoa(spans)
					case "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": // a quarter of the queue, as by default
						return strconv.Itoa(spans / 4)
					}
					return ""
				}
			})
			ask := servertest.Request(strings.Repeat("d", 10_000), 1)
			for range 16 {
				ask.Descriptors = append(ask.Descriptors, servertest.Request("", 0, "user="+strings.Repeat("v", 3000)).GetDescriptors()...)
			}
			// 512 bytes in as many members as there may be.
			state := strings.Repeat("k0123=012345678,", 30)
			for i := range 30 {
				state = strings.Replace(state, "k0123", "k"+string(rune('a'+i%26))+string(rune('a'+i/26))+"23", 1)
			}
			before := heaptest.InUse()
			for range spans + spans/4 { // more than it keeps
				d.askWith(ask, "traceparent", sampledParent, "tracestate", state)
			}
			if held := (heaptest.InUse() - before) / spans; held > c.bound {
				t.Errorf("a span holds %d bytes, the bound is %d", held, c.bound)
			} else {
				t.Logf("a span holds %d bytes", held)
			}
			runtime.KeepAlive(d)
		})
	}
}
