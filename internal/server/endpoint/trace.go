package endpoint

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// A sampled request has one span. An API begins it, since it knows what the caller says
// about its trace, and Endpoint describes in it what was asked and decided. Spans have
// names from the limits files, and no text of a caller except the domain, unless
// Tracer.Values is set. Without a tracer none of this runs.

// RPC returns what the spans of a method have in common. fullName begins with a
// slash.
func RPC(fullName string) *tracing.Operation {
	name := strings.TrimPrefix(fullName, "/")
	service, method, _ := strings.Cut(name, "/")
	return tracing.NewOperation(name,
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method))
}

// Traced wraps an answer for Unary in a span if the request is sampled.
func Traced[T any](e *Endpoint, fullName string, answer func(context.Context, T) error) func(context.Context, T) error {
	if e.Tracer == nil {
		return answer
	}
	operation := RPC(fullName)
	return func(ctx context.Context, request T) error {
		ctx, span := e.Tracer.Begin(ctx, operation, Metadata(ctx))
		if span == nil {
			return answer(ctx, request)
		}
		return InSpan(span, func() error { return answer(ctx, request) })
	}
}

// Metadata returns the metadata of a gRPC call. It allocates nothing, unlike the
// functions of package metadata, which copy what they find for each request.
func Metadata(ctx context.Context) tracing.Caller {
	md, ok := ctx.Value(incomingKey).(metadata.MD)
	if !ok { // there is none, or gRPC now keeps it in another way
		md, _ = metadata.FromIncomingContext(ctx)
	}
	return incoming(md)
}

// incoming is the metadata of a call. gRPC has its names in lower case.
type incoming metadata.MD

// Header implements tracing.Caller.
func (m incoming) Header(name string) string { return first(m[name]) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// incomingKey is the key under which a context has the metadata of a call. gRPC reveals
// it to the contexts that it asks.
var incomingKey = func() any {
	var asked keyAsked
	metadata.FromIncomingContext(&asked)
	return asked.key
}()

// keyAsked is a context that keeps the last key that it was asked for.
type keyAsked struct {
	context.Context
	key any
}

// Value implements context.Context.
func (c *keyAsked) Value(key any) any {
	c.key = key
	return nil
}

// httpHeader has the headers of an HTTP request.
type httpHeader http.Header

// Header implements tracing.Caller. For the headers that are read in each request it
// uses net/http's own spelling, which Get would allocate.
func (h httpHeader) Header(name string) string {
	switch name {
	case "traceparent":
		return first(h["Traceparent"])
	case "b3":
		return first(h["B3"])
	case "x-b3-traceid":
		return first(h["X-B3-Traceid"])
	case "x-b3-sampled":
		return first(h["X-B3-Sampled"])
	default:
		return http.Header(h).Get(name)
	}
}

// InSpan answers a gRPC request in a span, and ends the span.
func InSpan(span *tracing.Span, answer func() error) error {
	code := codes.Internal // stays so after a panic
	defer func() {
		span.Set(attribute.Int("rpc.grpc.status_code", int(code)))
		if code != codes.OK {
			span.Fail(code.String())
		}
		span.End()
	}()
	err := answer()
	code = status.Code(err)
	return err
}

// TracedHTTP wraps a handler in a span if the request is sampled. route is a pattern of
// http.ServeMux.
func TracedHTTP(t *tracing.Tracer, route string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	attributes := []attribute.KeyValue{attribute.String("http.route", route)}
	if method, path, ok := strings.Cut(route, " "); ok {
		attributes = []attribute.KeyValue{attribute.String("http.request.method", method), attribute.String("http.route", path)}
	}
	operation := tracing.NewOperation(route, attributes...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := t.Begin(r.Context(), operation, httpHeader(r.Header))
		if span == nil {
			next.ServeHTTP(w, r)
			return
		}
		answered := &statusWriter{ResponseWriter: w, code: http.StatusInternalServerError} // stays so after a panic
		defer func() {
			span.Set(attribute.Int("http.response.status_code", answered.code))
			if answered.code >= http.StatusInternalServerError {
				span.Fail("")
			}
			span.End()
		}()
		next.ServeHTTP(answered, r.WithContext(ctx))
	})
}

// statusWriter keeps the status of a response.
type statusWriter struct {
	http.ResponseWriter
	code    int
	written bool
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if !w.written {
		w.code, w.written = code, true
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(text []byte) (int, error) {
	if !w.written {
		w.code, w.written = http.StatusOK, true
	}
	return w.ResponseWriter.Write(text)
}

// Unwrap returns the writer for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// describe says in a request's span what was asked and decided.
func (e *Endpoint) describe(span *tracing.Span, c *decide.Call, code codes.Code) {
	span.Set(
		tracing.Text("ratelimit.domain", c.Domain),
		attribute.Int("ratelimit.descriptors", len(c.Descriptors)+c.MoreDescriptors),
	)
	if e.Tracer.Values {
		span.Set(attribute.StringSlice("ratelimit.values", appendValues(nil, c)))
	}
	if rules := appendRulePaths(nil, c); len(rules) > 0 {
		span.Set(attribute.StringSlice("ratelimit.rules", rules))
	}
	if code != codes.OK {
		return // the error's text may have values of the caller
	}
	if c.IsDegraded() {
		span.Set(attribute.Bool("ratelimit.degraded", true))
	}
	if c.IsSettlement {
		span.Set(attribute.Bool("ratelimit.settled", c.IsSettled()))
	}
	if !c.Denied {
		span.Set(attribute.String("ratelimit.code", "OK"))
		return
	}
	describeDenial(span, c)
}

// DescribeAll says in the span of several calls what was asked and decided. calls are
// those that were decided; failed is the number of the others.
func (e *Endpoint) DescribeAll(span *tracing.Span, calls []*decide.Call, failed int) {
	var rules, values, domains []string
	var denier *decide.Call
	descriptors, denied, degraded := 0, 0, false
	for _, c := range calls {
		descriptors += len(c.Descriptors) + c.MoreDescriptors
		rules = appendRulePaths(rules, c)
		if e.Tracer.Values {
			values = appendValues(values, c)
		}
		if len(domains) < 2 && !slices.Contains(domains, c.Domain) {
			domains = append(domains, c.Domain)
		}
		degraded = degraded || c.IsDegraded()
		if c.Denied {
			denied++
			denier = cmp.Or(denier, c)
		}
	}
	span.Set(
		attribute.Int("ratelimit.takes", len(calls)+failed), attribute.Int("ratelimit.takes.denied", denied), attribute.Int("ratelimit.takes.failed", failed),
		attribute.Int("ratelimit.descriptors", descriptors),
	)
	if len(domains) == 1 {
		span.Set(tracing.Text("ratelimit.domain", domains[0]))
	}
	if len(rules) > 0 {
		span.Set(attribute.StringSlice("ratelimit.rules", rules))
	}
	if len(values) > 0 {
		span.Set(attribute.StringSlice("ratelimit.values", values))
	}
	if degraded {
		span.Set(attribute.Bool("ratelimit.degraded", true))
	}
	switch {
	case denier != nil:
		describeDenial(span, denier)
	case len(calls) > 0:
		span.Set(attribute.String("ratelimit.code", "OK"))
	}
}

// describeDenial says which limit a denied call waits for.
func describeDenial(span *tracing.Span, c *decide.Call) {
	rule, limit := denier(c)
	span.Set(
		attribute.String("ratelimit.code", "OVER_LIMIT"),
		tracing.Text("ratelimit.denied_by.rule", rule),
		tracing.Text("ratelimit.denied_by.limit", limit),
	)
}

// appendValues appends the entries of each descriptor with their values, up to
// tracing.MaxTexts in all.
func appendValues(list []string, c *decide.Call) []string {
	for _, d := range c.Descriptors {
		if len(list) == tracing.MaxTexts {
			break
		}
		var text []byte
		for i, entry := range d.Entries {
			if len(text) > tracing.MaxText {
				break
			}
			if i > 0 {
				text = append(text, '|')
			}
			text = append(append(append(text, tracing.Cut(entry.Key)...), '='), tracing.Cut(entry.Value)...)
		}
		// Envoy sends headers as they are, but OTLP takes only UTF-8.
		list = append(list, tracing.Cut(strings.ToValidUTF8(string(text), "\uFFFD")))
	}
	return list
}

// appendRulePaths appends the paths of the rules that were matched, each once, up to
// tracing.MaxTexts in all.
func appendRulePaths(paths []string, c *decide.Call) []string {
	for i := range c.Outcomes {
		if len(paths) == tracing.MaxTexts {
			break
		}
		if r := c.Outcomes[i].Rule; r != nil {
			if path := tracing.Cut(r.Path()); !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// denier returns the limit that a denied call waits for: its rule's path and its name
// in metrics.
func denier(c *decide.Call) (rule, limit string) {
	i, j, _ := c.Denier()
	o := &c.Outcomes[i]
	if o.Rule != nil {
		rule = o.Rule.Path()
	}
	return rule, o.LimitName(j)
}
