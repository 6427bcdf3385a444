package takeapi

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Each of several requests has a span of its own, and their call or stream has
// none. A stream carries the requests of many callers, and brings their spans
// beside each; those of TakeMany have the caller of the call.
var (
	manyCall   = endpoint.RPC(ratelimitv1.RateLimitService_TakeMany_FullMethodName)
	streamCall = endpoint.RPC(ratelimitv1.RateLimitService_TakeStream_FullMethodName)
)

// answerTraced answers an item, in a span if it is sampled.
func (a *API) answerTraced(ctx context.Context, it *item) error {
	var span *tracing.Span
	if it.isStreamed {
		ctx, span = a.Tracer.BeginSampled(ctx, streamCall, it.traceparent)
	} else {
		ctx, span = a.Tracer.Begin(ctx, manyCall, endpoint.Metadata(ctx))
	}
	if span == nil {
		return a.Answer(ctx, it.call.Call)
	}
	return endpoint.InSpan(span, func() error { return a.Answer(ctx, it.call.Call) })
}
