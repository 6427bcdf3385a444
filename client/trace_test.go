package client_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// spanIn returns a context with a span, whose id ends with n.
func spanIn(ctx context.Context, n byte, flags trace.TraceFlags) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab, 15: n}, SpanID: trace.SpanID{0xcd, 7: n}, TraceFlags: flags,
	}))
}

// What an interceptor has put into the metadata stays alone.
func TestSpanInTheMetadataStays(t *testing.T) {
	t.Parallel()
	var got []string
	s := &daemontest.Script{OnTake: func(ctx context.Context, _ *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		got = metadata.ValueFromIncomingContext(ctx, "traceparent")
		return &ratelimitv1.TakeResponse{Allowed: true}, nil
	}}
	c := connect(t, s.Serve(t))
	ctx := spanIn(metadata.AppendToOutgoingContext(within(t), "traceparent", "own"), 7, trace.FlagsSampled)
	if _, err := c.Take(ctx, one("api", "much", strings.Repeat("x", 20_000))); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"own"}) {
		t.Errorf("the metadata says %q", got)
	}
}
