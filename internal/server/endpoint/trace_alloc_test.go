//go:build !race

package endpoint_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

func newTracer(t testing.TB, ratio float64) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.New(t.Context(), tracing.Options{
		Endpoint: otlptest.Start(t).HTTP, SampleRatio: ratio, Environment: func(string) string { return "" },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracer.Close)
	return tracer
}

// callContext is a context as gRPC's server makes one.
func callContext(b testing.TB, headers ...string) context.Context {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	b.Cleanup(cancel)
	ctx = peer.NewContext(ctx, new(peer.Peer))
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(append(headers, ":authority", "x", "content-type", "application/grpc", "user-agent", "x")...))
	return grpc.NewContextWithServerTransportStream(ctx, nil)
}

// For nearly all requests of a busy daemon, tracing costs only time.
func TestUnsampledRequestAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		ratio   float64
		headers []string
	}{
		{"the parent is not sampled", 1, []string{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}},
		{"no parent, none chosen", 0, nil},
		{"no parent, hardly any chosen", 1e-9, nil},
		{"a header that is no parent", 0, []string{"x-b3-traceid", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &endpoint.Endpoint{Tracer: newTracer(t, c.ratio)}
			answer := endpoint.Traced(e, "/a.Service/Method", func(context.Context, int) error { return nil })
			ctx := callContext(t, c.headers...)
			if n := testing.AllocsPerRun(1000, func() { _ = answer(ctx, 1) }); n > 0 {
				t.Errorf("%v allocations over gRPC", n)
			}
			r, w := httptest.NewRequest(http.MethodPost, "/json", nil), httptest.NewRecorder()
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			handler := endpoint.TracedHTTP(e.Tracer, "POST /json", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if n := testing.AllocsPerRun(1000, func() { handler.ServeHTTP(w, r) }); n > 0 {
				t.Errorf("%v allocations over HTTP", n)
			}
		})
	}
}
