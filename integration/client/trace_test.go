package client_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// spanIn returns a context with a span, whose id ends with n.
func spanIn(ctx context.Context, n byte, flags trace.TraceFlags) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab, 15: n}, SpanID: trace.SpanID{0xcd, 7: n}, TraceFlags: flags,
	}))
}

// startTraced starts a daemon that sends spans to a collector. stop sends what
// waits.
func startTraced(t *testing.T) (d *daemon, c *otlptest.Collector, stop func()) {
	t.Helper()
	c = otlptest.Start(t)
	tracer, err := tracing.New(t.Context(), tracing.Options{
		Endpoint: c.HTTP, SampleRatio: 0, Environment: func(string) string { return "" },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	d = start(t, limits, func(o *server.Options) { o.Tracer = tracer })
	return d, c, tracer.Close
}

// Takes of several callers share a stream, and each brings its own span.
func TestTakesOfAStreamAreChildrenOfTheirCallers(t *testing.T) {
	t.Parallel()
	d, collector, stop := startTraced(t)
	c := connect(t, d.Address)
	ctx := within(t)
	const callers = 40
	done := make(chan error, callers)
	for i := range callers {
		go func() {
			flags := trace.TraceFlags(i % 2) // sampled
			_, err := c.Allow(spanIn(ctx, byte(i), flags), "api", client.E("much", "secret"))
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	stop()
	spans := collector.Spans()
	var parents []byte
	for _, s := range spans {
		if !strings.HasPrefix(s.TraceHex(), "ab") || s.GetTraceId()[15] != s.GetParentSpanId()[7] {
			t.Errorf("the trace %s, the parent %s", s.TraceHex(), s.ParentHex())
		}
		parents = append(parents, s.GetParentSpanId()[7])
	}
	slices.Sort(parents)
	want := make([]byte, 0, callers)
	for i := 1; i < callers; i += 2 {
		want = append(want, byte(i))
	}
	if !slices.Equal(parents, want) || collector.Holds("secret") {
		t.Errorf("children of %v, want %v", parents, want)
	}
}

// A request that is too long for a stream is a call, and says its span in the
// metadata; so does a give-back.
func TestCallsBesideStreamsSayTheirSpan(t *testing.T) {
	t.Parallel()
	d, collector, stop := startTraced(t)
	c := connect(t, d.Address)
	ctx := spanIn(within(t), 7, trace.FlagsSampled)
	long, err := c.Take(ctx, one("api", "much", strings.Repeat("x", 20_000)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.GiveBack(ctx, long); err != nil {
		t.Fatal(err)
	}
	stop()
	var names []string
	for _, s := range collector.Spans() {
		names = append(names, s.GetName())
		if s.GetParentSpanId()[7] != 7 {
			t.Errorf("%s has the parent %s", s.GetName(), s.ParentHex())
		}
	}
	if want := []string{"ratelimit.v1.RateLimitService/Take", "ratelimit.v1.RateLimitService/GiveBack"}; !slices.Equal(names, want) {
		t.Errorf("spans %v, want %v", names, want)
	}
}
