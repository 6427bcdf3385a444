package tracing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// propagatorsByName are the formats of a caller's trace, by the names in
// OTEL_PROPAGATORS. The daemon calls nobody with a request's baggage, so it reads
// none.
var propagatorsByName = map[string]propagation.TextMapPropagator{
	"tracecontext": propagation.TraceContext{},
	"b3":           b3.New(),
	"b3multi":      b3.New(),
	"baggage":      nil,
	"none":         nil,
}

// Propagators returns the names of the formats that are known.
func Propagators() []string { return []string{"tracecontext", "b3", "b3multi", "baggage", "none"} }

// newPropagators returns those of the names, each once.
func newPropagators(names []string) ([]propagation.TextMapPropagator, error) {
	var list []propagation.TextMapPropagator
	for _, name := range names {
		p, known := propagatorsByName[strings.TrimSpace(name)]
		if !known {
			return nil, fmt.Errorf("OTEL_PROPAGATORS: found %q; allowed: %s", Cut(name), allowed(Propagators()...))
		}
		if p != nil && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list, nil
}

// maxHeader bounds a header that is read, in bytes; a longer one counts as none. A
// tracestate of 512 is what each has to take.
const maxHeader = 512

// headers is a propagation.TextMapCarrier that is only read.
type headers func(name string) string

func (h headers) Get(name string) string {
	if value := h(name); len(value) <= maxHeader {
		return value
	}
	return ""
}

func (headers) Set(string, string) {}
func (headers) Keys() []string     { return nil }

// parent returns the caller's span, by the first format that has one.
func (t *Tracer) parent(caller func(name string) string) trace.SpanContext {
	for _, p := range t.propagators {
		if found := parentOf(p, caller); found.IsValid() {
			return found
		}
	}
	return trace.SpanContext{}
}

func parentOf(p propagation.TextMapPropagator, caller func(name string) string) trace.SpanContext {
	return trace.SpanContextFromContext(p.Extract(context.Background(), headers(caller)))
}
