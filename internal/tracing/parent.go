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
	// begins are headers, one of which a request in the format has.
	begins []string
}

var (
	w3c    = propagator{propagation.TraceContext{}, []string{"traceparent"}}
	zipkin = propagator{b3.New(), []string{"b3", "x-b3-traceid", "x-b3-sampled"}}
)

// propagatorsByName has the formats by the names in OTEL_PROPAGATORS. The daemon passes
// no request's baggage on, so it reads none.
var propagatorsByName = map[string][]propagator{
	"tracecontext": {w3c},
	"b3":           {zipkin},
	"b3multi":      {zipkin},
	"baggage":      nil,
	"none":         nil,
}

// Propagators returns the names of the formats that are known.
func Propagators() []string { return []string{"tracecontext", "b3", "b3multi", "baggage", "none"} }

// newPropagators returns those with the names, each once.
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

// maxHeader bounds a header that is read, in bytes; a longer one counts as none.
// Everybody has to accept a tracestate of 512.
const maxHeader = 512

// Caller is what a request says of its caller. It is not a function, since a request that
// is not sampled would allocate one.
type Caller interface {
	// Header returns a header by its name in lower case, or an empty text.
	Header(name string) string
}

// headers is a propagation.TextMapCarrier for reading only.
type headers struct{ Caller }

func (h headers) Get(name string) string {
	if value := h.Header(name); len(value) <= maxHeader {
		return value
	}
	return ""
}

func (headers) Set(string, string) {}
func (headers) Keys() []string     { return nil }

// parent returns the caller's span, by the first format that has one, and whether the
// caller says that it is not sampled: then the span itself may be left out.
func (t *Tracer) parent(caller Caller) (parent trace.SpanContext, isUnsampled bool) {
	for i := range t.propagators {
		p := &t.propagators[i]
		for _, name := range p.begins {
			value := caller.Header(name)
			if value == "" {
				continue
			}
			if saysUnsampled(name, value) {
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

func extract(p propagation.TextMapPropagator, caller Caller) trace.SpanContext {
	return trace.SpanContextFromContext(p.Extract(context.Background(), headers{caller}))
}

// saysUnsampled reports whether a header alone says that there is to be no span.
func saysUnsampled(name, value string) bool {
	switch name {
	case "traceparent":
		return isUnsampled(value) // as with nearly all requests of a busy Envoy
	case "b3":
		return value == "0" // without a span, where the SDK passes it over
	case "x-b3-sampled":
		return value == "0" || value == "false" // as it was once spelt
	}
	return false
}

// isUnsampled reports whether a text is a traceparent in version 00 of a span that
// is not sampled. It does not know all that the SDK does, but costs a tenth.
func isUnsampled(text string) bool {
	const traceAt, spanAt, flagsAt = len("00-"), len("00-") + 33, TraceparentSize - 2
	return len(text) == TraceparentSize && text[flagsAt-1:] == "-00" && text[:traceAt] == "00-" && text[spanAt-1] == '-' &&
		isID(text[traceAt:spanAt-1]) && isID(text[spanAt:flagsAt-1])
}

// isID reports whether a text is a number in hexadecimal, in lower case, and not 0.
func isID(text string) bool {
	var all byte
	for i := range len(text) {
		all |= digits[text[i]]
	}
	return all != 0 && all&noDigit == 0
}

// digits are the values of hexadecimal digits in lower case. Comparing 48 of them takes
// twice as long, because of branches that go either way.
var digits = func() (values [256]byte) {
	for c := range values {
		values[c] = noDigit
	}
	for value, c := range []byte("0123456789abcdef") {
		values[c] = byte(value)
	}
	return values
}()

const noDigit = 1 << 7
