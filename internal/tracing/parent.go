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

// propagator reads one format of a caller's trace.
type propagator struct {
	format propagation.TextMapPropagator
	// begins are headers of which a request in the format has one.
	begins []string
}

var (
	w3c    = propagator{propagation.TraceContext{}, []string{"traceparent"}}
	zipkin = propagator{b3.New(), []string{"b3", "x-b3-traceid"}}
)

// propagatorsByName has the formats by the names in OTEL_PROPAGATORS. The daemon
// calls nobody with a request's baggage, so it reads none.
var propagatorsByName = map[string][]propagator{
	"tracecontext": {w3c},
	"b3":           {zipkin},
	"b3multi":      {zipkin},
	"baggage":      nil,
	"none":         nil,
}

// Propagators returns the names of the formats that are known.
func Propagators() []string { return []string{"tracecontext", "b3", "b3multi", "baggage", "none"} }

// newPropagators returns those of the names, each once.
func newPropagators(names []string) ([]propagator, error) {
	var list []propagator
	for _, name := range names {
		found, known := propagatorsByName[strings.TrimSpace(name)]
		if !known {
			return nil, fmt.Errorf("OTEL_PROPAGATORS: found %q; allowed: %s", Cut(name), allowed(Propagators()...))
		}
		for _, p := range found {
			if !slices.ContainsFunc(list, func(other propagator) bool { return other.begins[0] == p.begins[0] }) {
				list = append(list, p)
			}
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

// parent returns the caller's span, by the first format that has one, and whether it
// is there and not sampled: then the span itself may be left out.
func (t *Tracer) parent(caller func(name string) string) (parent trace.SpanContext, isUnsampled bool) {
	for i := range t.propagators {
		p := &t.propagators[i]
		for _, name := range p.begins {
			value := caller(name)
			if value == "" {
				continue
			}
			// So are nearly all requests of a busy Envoy.
			if name == "traceparent" && saysUnsampled(value) {
				return parent, true
			}
			if parent = extract(p.format, caller); parent.IsValid() {
				return parent, !parent.IsSampled()
			}
			break
		}
	}
	return trace.SpanContext{}, false
}

func extract(p propagation.TextMapPropagator, caller func(name string) string) trace.SpanContext {
	return trace.SpanContextFromContext(p.Extract(context.Background(), headers(caller)))
}

// saysUnsampled reports whether a text is a traceparent in version 00 of a span that
// is not sampled. It does not know all that the SDK does, but costs a tenth.
func saysUnsampled(text string) bool {
	const traceAt, spanAt, flagsAt = len("00-"), len("00-") + 33, TraceparentSize - 2
	return len(text) == TraceparentSize && text[:traceAt] == "00-" && text[spanAt-1] == '-' && text[flagsAt-1] == '-' &&
		isID(text[traceAt:spanAt-1]) && isID(text[spanAt:flagsAt-1]) && text[flagsAt:] == "00"
}

// isID reports whether a text is a number in hexadecimal, in lower case, and not 0.
func isID(text string) bool {
	var all byte
	for i := range len(text) {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		all |= c ^ '0'
	}
	return all != 0
}
