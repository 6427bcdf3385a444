package takeapi

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Each request of a stream has a span of its own, and the stream has none: it carries
// the requests of many callers, each with the caller's span beside it. The requests of
// TakeMany come from the caller of the call, which has one span.
var streamCall = endpoint.RPC(ratelimitv1.RateLimitService_TakeStream_FullMethodName)

// answerStreamed answers an item of a stream, in a span if it is sampled.
func (a *API) answerStreamed(ctx context.Context, it *item) error {
	ctx, span := a.Tracer.BeginSampled(ctx, streamCall, it.traceparent)
	if span == nil {
		return a.Answer(ctx, it.call.Call, nil)
	}
	return endpoint.InSpan(span, func() error { return a.Answer(ctx, it.call.Call, nil) })
}

// part returns a context in which an item is answered as a part of a span.
func (it *item) part(ctx context.Context, of *tracing.Span) context.Context {
	ctx, it.span = of.Part(ctx)
	return ctx
}

// describe says in the span of all items what was asked and decided. The text of the
// span's status is the code of the first item that failed.
func (t *takes) describe(span *tracing.Span) {
	calls := make([]*decide.Call, 0, len(t.items))
	failed := 0
	for _, it := range t.items {
		if it.span != nil {
			span.Join(it.span)
		}
		if it.err == nil {
			calls = append(calls, it.call.Call)
			continue
		}
		if failed == 0 {
			span.Fail(status.Code(it.err).String())
		}
		failed++
	}
	t.api.DescribeAll(span, calls, failed)
}
