package endpoint_test

import (
	"context"
	"errors"
	"log/slog"
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

// BenchmarkTraced measures what a call's span costs around its answer.
func BenchmarkTraced(b *testing.B) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	for _, c := range []struct {
		name    string
		off     bool
		ratio   float64
		headers []string
	}{
		{"off", true, 0, nil},
		{"the parent is not sampled", false, 1, []string{"traceparent", trace + "00"}},
		{"no parent, 0.01", false, .01, nil},
		{"sampled", false, 1, []string{"traceparent", trace + "01"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := new(endpoint.Endpoint)
			if !c.off {
				e.Tracer = newTracer(b, c.ratio)
			}
			answer := endpoint.Traced(e, "/a.Service/Method", func(ctx context.Context, _ int) error {
				if e.Tracer != nil && tracing.SpanOf(ctx) == nil && c.name == "sampled" {
					return errors.New("no span")
				}
				return nil
			})
			ctx := callContext(b, c.headers...)
			b.ReportAllocs()
			for b.Loop() {
				if err := answer(ctx, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
