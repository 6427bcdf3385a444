package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Options of a Tracer.
type Options struct {
	// Endpoint is the collector's URL, such as http://collector:4318; empty leaves
	// it to OTEL_EXPORTER_OTLP_*.
	Endpoint string
	// Protocol is ProtocolHTTP or ProtocolGRPC; empty leaves it to
	// OTEL_EXPORTER_OTLP_PROTOCOL, and without that means ProtocolHTTP.
	Protocol string
	// SampleRatio is the share of the requests without a parent that is sampled, 0 to 1;
	// otherwise the parent decides. A negative one leaves both to OTEL_TRACES_SAMPLER,
	// and without that means 1.
	SampleRatio float64
	// Propagators are the names of those formats of a caller's trace that are
	// read, of Propagators(); none leaves them to OTEL_PROPAGATORS, and without
	// that means all.
	Propagators []string
	// ServiceName, ServiceNamespace and ServiceInstanceID name the daemon. Empty
	// ones are left to OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, and without
	// these are ratelimitd, none, and a random UUID.
	ServiceName, ServiceNamespace, ServiceInstanceID string
	// Version is the daemon's version.
	Version string
	// Values is whether spans may hold the values of descriptors.
	Values bool
	// Environment returns a variable, as os.Getenv does. The SDK reads more of
	// them, from the process.
	Environment func(name string) string
	// Metrics is where the counts of spans are registered.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Tracer makes spans. Its methods may be called concurrently.
type Tracer struct {
	// Values is that of the options.
	Values bool

	queue       *queue
	provider    *sdktrace.TracerProvider // of requests
	batches     *sdktrace.TracerProvider
	requests    trace.Tracer
	batch       trace.Tracer
	propagators []propagator
	// ratio is the share of the requests without a parent that is sampled, while
	// the parent decides for the others. It is negative if the SDK decides, by a
	// sampler of the environment.
	ratio float64
}

// scope is the name of the library that makes the spans.
const scope = "github.com/ratelimitd/ratelimitd"

// New returns a tracer, or nil if the environment turns traces off: OTEL_SDK_DISABLED, or
// OTEL_TRACES_EXPORTER=none. It does not wait for the collector. It fails on a variable
// with an invalid value, and on certificates that cannot be read.
func New(ctx context.Context, o Options) (*Tracer, error) {
	environment := environment{o.Environment}
	if off, err := environment.isOff(); off || err != nil {
		return nil, err
	}
	propagators, err := environment.propagators(o.Propagators)
	if err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx, o, environment)
	if err != nil {
		return nil, err
	}
	resource, err := NewResource(ctx, o)
	if err != nil {
		return nil, err
	}
	t := &Tracer{Values: o.Values, propagators: propagators, ratio: o.SampleRatio}
	t.queue = newQueue(exporter, environment.pace(), o.Metrics, o.Log)
	common := []sdktrace.TracerProviderOption{
		sdktrace.WithSpanProcessor(t.queue), sdktrace.WithResource(resource), sdktrace.WithRawSpanLimits(spanLimits()),
	}
	requests := common
	if t.ratio < 0 {
		t.ratio = environment.ratio()
	}
	if t.ratio >= 0 {
		// Begin leaves out the others, at a fraction of the SDK's cost.
		requests = append(requests[:len(requests):len(requests)], sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	}
	t.provider = sdktrace.NewTracerProvider(requests...)
	// A span of a batch is made only if one of its requests is sampled.
	t.batches = sdktrace.NewTracerProvider(append(common[:len(common):len(common)], sdktrace.WithSampler(sdktrace.AlwaysSample()))...)
	t.requests, t.batch = t.provider.Tracer(scope), t.batches.Tracer(scope)
	return t, nil
}

// spanLimits bound what a span holds, whatever its makers do and the environment
// says.
func spanLimits() sdktrace.SpanLimits {
	l := sdktrace.NewSpanLimits()
	bound := func(limit *int, maxValue int) {
		if *limit < 0 || *limit > maxValue {
			*limit = maxValue
		}
	}
	bound(&l.AttributeValueLengthLimit, MaxText)
	bound(&l.AttributeCountLimit, 64)
	bound(&l.LinkCountLimit, bucket.MaxTraceBatches)
	return l
}

// flushWithin is how long a daemon that ends waits for the collector.
const flushWithin = 2 * time.Second

// Close sends the spans that wait, for at most flushWithin, and drops what is left then.
func (t *Tracer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := t.queue.Shutdown(ctx); err != nil {
		t.queue.logFailure(fmt.Errorf("spans were left at the end: %w", err))
	}
}

// Batch makes the span of a batch that is back, and returns its name, or none if there is
// no place for it.
func (t *Tracer) Batch(b bucket.TracedBatch) bucket.SpanRef {
	if !t.queue.take() {
		return bucket.SpanRef{}
	}
	_, span := t.batch.Start(context.Background(), "redis batch", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(b.Start),
		trace.WithAttributes(
			attribute.String("db.system.name", "redis"),
			attribute.String("ratelimit.batch.node", b.Node),
			attribute.Int("ratelimit.batch.requests", b.Requests),
			attribute.Int("ratelimit.batch.commands", b.Commands),
			attribute.Int("ratelimit.batch.limits", b.Limits),
		))
	if b.Failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(b.Start.Add(b.Took)))
	c := span.SpanContext()
	return bucket.SpanRef{Trace: c.TraceID(), Span: c.SpanID()}
}

// Operation is what spans of the same method or route have in common.
type Operation struct {
	name    string
	options []trace.SpanStartOption
}

// NewOperation returns the operation of that name, with the attributes of all its spans.
func NewOperation(name string, attributes ...attribute.KeyValue) *Operation {
	return &Operation{name, []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...)}}
}

// Begin begins the span of a request as a child of what its caller says. It returns
// the context to decide the request with, and nil if it is not sampled.
func (t *Tracer) Begin(ctx context.Context, operation *Operation, caller Caller) (context.Context, *Span) {
	parent, isUnsampled := t.parent(caller)
	if t.ratio >= 0 && (isUnsampled || !parent.IsValid() && rand.Float64() >= t.ratio) {
		return ctx, nil
	}
	return t.begin(ctx, operation, parent)
}

// BeginSampled is Begin for a request whose caller says by a traceparent that it is
// sampled. Without one there is no span.
func (t *Tracer) BeginSampled(ctx context.Context, operation *Operation, traceparent string) (context.Context, *Span) {
	parent, ok := sampledParent(traceparent)
	if !ok {
		return ctx, nil
	}
	return t.begin(ctx, operation, parent)
}

// IsSampled reports whether a traceparent says that a request is sampled.
func IsSampled(traceparent string) bool {
	_, ok := sampledParent(traceparent)
	return ok
}

func sampledParent(traceparent string) (trace.SpanContext, bool) {
	if len(traceparent) != TraceparentSize {
		return trace.SpanContext{}, false
	}
	parent := extract(propagation.TraceContext{}, onlyTraceparent(traceparent))
	return parent, parent.IsSampled()
}

// onlyTraceparent is a Caller that says nothing else.
type onlyTraceparent string

// Header implements Caller.
func (p onlyTraceparent) Header(name string) string {
	if name == "traceparent" {
		return string(p)
	}
	return ""
}

func (t *Tracer) begin(ctx context.Context, operation *Operation, parent trace.SpanContext) (context.Context, *Span) {
	// If the SDK decides, there may be no span to take a place for.
	if t.ratio >= 0 && !t.queue.take() {
		return ctx, nil
	}
	// Spans that some library put into the context are not the caller's.
	above := context.Background()
	if parent.IsValid() {
		above = trace.ContextWithRemoteSpanContext(above, parent)
	}
	_, span := t.requests.Start(above, operation.name, operation.options...)
	if !span.IsRecording() || t.ratio < 0 && !t.queue.take() {
		return ctx, nil
	}
	s := &Span{span: span}
	return &sampled{ctx, s}, s
}

// TraceparentSize is the size of a traceparent, in bytes.
const TraceparentSize = len("00-00000000000000000000000000000000-0000000000000000-00")

// ProtocolHTTP and ProtocolGRPC are the protocols of OTLP, by their names in
// OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	ProtocolHTTP = "http/protobuf"
	ProtocolGRPC = "grpc"
)

func allowed(words ...string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
