package tracing

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Bounds of what a span holds: the bytes of a text, and the texts of a list.
const (
	MaxText  = 256
	MaxTexts = 16
)

// Span is the span of a request that is sampled. It belongs to the goroutine that
// answers the request.
type Span struct {
	// Store is what the store reports of the request.
	Store bucket.Trace
	span  trace.Span
	// isPart is whether it stands for one of several requests.
	isPart bool
}

// sampled is the context of a request that is sampled.
type sampled struct {
	context.Context
	span *Span
}

var _ bucket.Traced = (*sampled)(nil)

// Trace implements bucket.Traced.
func (s *sampled) Trace() *bucket.Trace { return &s.span.Store }

// SpanOf returns the span of a request with this very context, or nil.
func SpanOf(ctx context.Context) *Span {
	if s, ok := ctx.(*sampled); ok {
		return s.span
	}
	return nil
}

// spanKey is the key of the span among a context's values.
type spanKey struct{}

// Value implements context.Context.
func (s *sampled) Value(key any) any {
	if key == (spanKey{}) {
		return s.span
	}
	return s.Context.Value(key)
}

// OnTop returns ctx, in which SpanOf finds the span of a context that ctx derives from.
func OnTop(ctx context.Context) context.Context {
	if span, ok := ctx.Value(spanKey{}).(*Span); ok {
		return &sampled{ctx, span}
	}
	return ctx
}

// Part returns the context to decide one of the span's several requests with, and what
// stands for the span there. Parts may be used at the same time; Join follows when all
// are answered. A part is neither described nor ended.
func (s *Span) Part(ctx context.Context) (context.Context, *Span) {
	part := &Span{span: s.span, isPart: true}
	return &sampled{ctx, part}, part
}

// IsPart reports whether the span is that of several requests, and the caller answers
// one of them.
func (s *Span) IsPart() bool { return s.isPart }

// Join adds what the store reported of a part: the longest times, and all batches as far
// as they are kept.
func (s *Span) Join(part *Span) {
	t, of := &s.Store, &part.Store
	t.Queued, t.Asked = max(t.Queued, of.Queued), max(t.Asked, of.Asked)
	t.Known = t.Known || of.Known
	t.Degraded = cmp.Or(t.Degraded, of.Degraded)
	for _, b := range of.Batches {
		if !slices.Contains(t.Batches, b) {
			t.AddBatch(b)
		}
	}
}

// Set sets attributes. Texts are cut to MaxText; the caller bounds lists of them.
func (s *Span) Set(attributes ...attribute.KeyValue) { s.span.SetAttributes(attributes...) }

// Text is an attribute whose text is cut to MaxText bytes, and is UTF-8.
func Text(key, text string) attribute.KeyValue { return attribute.String(key, Cut(text)) }

// Cut cuts a text to MaxText bytes at most, and between its characters. It copies the
// text: a caller's text is part of all that the caller sent, which a span would otherwise
// keep alive.
func Cut(text string) string {
	if len(text) > MaxText {
		n := MaxText
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.Clone(text)
}

// TraceID returns the trace's identifier, 32 hexadecimal digits.
func (s *Span) TraceID() string { return s.span.SpanContext().TraceID().String() }

// Ref returns the name of the span.
func (s *Span) Ref() bucket.SpanRef {
	c := s.span.SpanContext()
	return bucket.SpanRef{Trace: c.TraceID(), Span: c.SpanID()}
}

// Fail marks the span as that of a request which failed.
func (s *Span) Fail(code string) { s.span.SetStatus(codes.Error, code) }

// End ends the span, with what the store reported.
func (s *Span) End() {
	t := &s.Store
	if t.Queued > 0 || t.Asked > 0 {
		s.Set(attribute.Float64("ratelimit.queue.seconds", t.Queued.Seconds()), attribute.Float64("ratelimit.redis.seconds", t.Asked.Seconds()))
	}
	if t.Known {
		s.Set(attribute.Bool("ratelimit.known_denial", true))
	}
	if t.Degraded != "" {
		s.Set(attribute.String("ratelimit.degraded.reason", t.Degraded))
	}
	for _, b := range t.Batches {
		s.span.AddLink(trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: b.Trace, SpanID: b.Span, TraceFlags: trace.FlagsSampled,
		})})
	}
	s.span.End()
}
