package stream

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Traceparent is a sampled span in the form of W3C's traceparent, version 00. The zero
// Traceparent is no span.
type Traceparent [len(traceparentForm)]byte

const traceparentForm = "00-00000000000000000000000000000000-0000000000000000-01"

// TraceparentOf returns the caller's span, if it is sampled.
func TraceparentOf(ctx context.Context) (p Traceparent) {
	c := trace.SpanContextFromContext(ctx)
	if !c.IsSampled() || !c.IsValid() {
		return p
	}
	const traceAt, spanAt = len("00-"), len("00-00000000000000000000000000000000-")
	copy(p[:], traceparentForm)
	traceID, spanID := c.TraceID(), c.SpanID()
	hex.Encode(p[traceAt:], traceID[:])
	hex.Encode(p[spanAt:], spanID[:])
	return p
}

func (p *Traceparent) isSet() bool { return p[0] != 0 }

// in returns a context for a gRPC call that carries the span, unless ctx carries one
// already.
func (p *Traceparent) in(ctx context.Context) context.Context {
	const header = "traceparent"
	if !p.isSet() {
		return ctx
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok && len(md.Get(header)) > 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, header, string(p[:]))
}
