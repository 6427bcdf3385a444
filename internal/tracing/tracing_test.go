package tracing_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

var operation = tracing.NewOperation("a call")

// rig is a tracer with its counts and its log.
type rig struct {
	*tracing.Tracer
	metrics *prometheus.Registry
	log     asynctest.Buffer
}

// start returns a tracer for the options and the variables of an environment,
// "NAME=value". The SDK does not see these.
func start(t testing.TB, o tracing.Options, environ ...string) *rig {
	t.Helper()
	r := &rig{metrics: prometheus.NewRegistry()}
	o.Metrics, o.Log = r.metrics, slog.New(slog.NewTextHandler(&r.log, nil))
	o.Environment = lookup(environ)
	var err error
	if r.Tracer, err = tracing.New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return r
}

func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, v := range environ {
			if n, value, _ := strings.Cut(v, "="); n == name {
				return value
			}
		}
		return ""
	}
}

// said are the headers of a caller.
type said map[string]string

func (s said) Header(name string) string { return s[name] }

var none said

// make begins and ends n spans, those that there is a place for.
func (r *rig) make(t testing.TB, n int) {
	t.Helper()
	for range n {
		if _, span := r.Begin(t.Context(), operation, none); span != nil {
			span.End()
		}
	}
}

// count returns how many spans ended so.
func (r *rig) count(t testing.TB, result string) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "ratelimitd_trace_spans_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("nothing is counted as %s", result)
	return 0
}

func TestSpansAreSentOverBothProtocols(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		options  func(*otlptest.Collector) tracing.Options
		environ  []string
		overGRPC bool
	}{
		{"http by default", func(c *otlptest.Collector) tracing.Options { return tracing.Options{Endpoint: c.HTTP} }, nil, false},
		{"http, with a slash", func(c *otlptest.Collector) tracing.Options { return tracing.Options{Endpoint: c.HTTP + "/"} }, nil, false},
		{"grpc", func(c *otlptest.Collector) tracing.Options {
			return tracing.Options{Endpoint: c.GRPC, Protocol: tracing.ProtocolGRPC}
		}, nil, true},
		{"grpc by the environment", func(c *otlptest.Collector) tracing.Options { return tracing.Options{Endpoint: c.GRPC} },
			[]string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, true},
		{"http for traces by the environment", func(c *otlptest.Collector) tracing.Options { return tracing.Options{Endpoint: c.HTTP} },
			[]string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, false},
		{"the option before the environment", func(c *otlptest.Collector) tracing.Options {
			return tracing.Options{Endpoint: c.HTTP, Protocol: tracing.ProtocolHTTP}
		}, []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.Start(t)
			o := c.options(collector)
			o.SampleRatio = 1
			r := start(t, o, c.environ...)
			r.make(t, 3)
			r.Close()
			spans := collector.Spans()
			if len(spans) != 3 || spans[0].OverGRPC != c.overGRPC || r.count(t, "exported") != 3 || r.count(t, "dropped")+r.count(t, "failed") != 0 {
				t.Errorf("%d spans: %v", len(spans), spans)
			}
		})
	}
}

func TestEnvironmentTurnsSpansOffOrIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variable, want string }{ // want is the error, "off" or "on"
		{"OTEL_SDK_DISABLED=true", "off"},
		{"OTEL_SDK_DISABLED=TRUE", "off"},
		{"OTEL_SDK_DISABLED=false", "on"},
		{"OTEL_SDK_DISABLED=1", "on"}, // as the specification has it
		{"OTEL_TRACES_EXPORTER=none", "off"},
		{"OTEL_TRACES_EXPORTER=otlp", "on"},
		{"OTEL_TRACES_EXPORTER=zipkin", `OTEL_TRACES_EXPORTER: found "zipkin"; allowed: otlp or none`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: found "http/json"; allowed: grpc or http/protobuf`},
		{"OTEL_PROPAGATORS=jaeger,b3", `OTEL_PROPAGATORS: found "jaeger"; allowed: tracecontext, b3, b3multi, baggage or none`},
		{"OTEL_PROPAGATORS=tracecontext, b3,b3multi,baggage", "on"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Parallel()
			tracer, err := tracing.New(t.Context(), tracing.Options{
				Environment: lookup([]string{c.variable}), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			})
			got := "on"
			switch {
			case err != nil:
				got = err.Error()
			case tracer == nil:
				got = "off"
			default:
				tracer.Close()
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// The SDK reads these from the process, so no other test runs beside.
func TestVariablesOfTheSDKCount(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, c := range []struct {
		name        string
		environ     map[string]string
		options     tracing.Options
		traceparent string
		sampled     bool
		resource    map[string]any // of the span
	}{
		{"nothing", nil, tracing.Options{SampleRatio: -1, Version: "v9"}, "", true,
			map[string]any{"service.name": "ratelimitd", "service.version": "v9", "service.namespace": nil}},
		{"always_off", map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}, tracing.Options{SampleRatio: -1}, "", false, nil},
		{"always_on has no parents", map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, tracing.Options{SampleRatio: -1}, parent, true, nil},
		{"a ratio of 0", map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, tracing.Options{SampleRatio: -1}, "", false, nil},
		{"parent-based", map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, tracing.Options{SampleRatio: -1}, parent, false, nil},
		{"the setting before the variable", map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}, tracing.Options{SampleRatio: 1}, "", true, nil},
		{"names by variables", map[string]string{"OTEL_SERVICE_NAME": "limits", "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=edge,zone=a"}, tracing.Options{SampleRatio: 1}, "", true,
			map[string]any{"service.name": "limits", "service.namespace": "edge", "zone": "a"}},
		{"names by settings", map[string]string{"OTEL_SERVICE_NAME": "limits", "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=edge,zone=a"},
			tracing.Options{SampleRatio: 1, ServiceName: "RateLimit", ServiceNamespace: "gateways", ServiceInstanceID: "pod-1"}, "", true,
			map[string]any{"service.name": "RateLimit", "service.namespace": "gateways", "service.instance.id": "pod-1", "zone": "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := otlptest.Start(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.HTTP)
			var environ []string
			for name, value := range c.environ {
				t.Setenv(name, value)
				environ = append(environ, name+"="+value)
			}
			r := start(t, c.options, environ...)
			_, span := r.Begin(t.Context(), operation, said{"traceparent": c.traceparent})
			if (span != nil) != c.sampled {
				t.Errorf("sampled: %t", span != nil)
			}
			if span != nil {
				span.End()
			}
			r.Close()
			for key, want := range c.resource {
				if got := collector.Spans()[0].Resource[key]; got != want {
					t.Errorf("%s: %v, want %v", key, got, want)
				}
			}
		})
	}
}

func TestInstanceIsAUUIDUnlessNamed(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	r := start(t, tracing.Options{Endpoint: collector.HTTP, SampleRatio: 1})
	r.make(t, 1)
	r.Close()
	id, _ := collector.Spans()[0].Resource["service.instance.id"].(string)
	if _, err := uuid.Parse(id); err != nil {
		t.Error(err)
	}
}

// A collector that is away, or that takes connections and says nothing, holds nobody
// up, and fills no memory.
func TestSpansWithoutACollectorAreLostAndCounted(t *testing.T) {
	t.Parallel()
	const size, made = 100, 5000
	for _, protocol := range []string{tracing.ProtocolHTTP, tracing.ProtocolGRPC} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,silent=%t", protocol, silent), func(t *testing.T) {
				t.Parallel()
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if !silent {
					l.Close()
				}
				r := start(t, tracing.Options{Endpoint: "http://" + l.Addr().String(), Protocol: protocol, SampleRatio: 1}, "OTEL_BSP_MAX_QUEUE_SIZE=100")
				r.make(t, made)
				// A refusal ends a batch at once, and its places are free again.
				if n := r.count(t, "dropped"); silent && n != made-size {
					t.Errorf("%v of %d spans are dropped at once", n, made)
				}
				begun := time.Now()
				r.Close()
				if took := time.Since(begun); took > 30*time.Second {
					t.Errorf("the end took %s", took)
				}
				// A batch that is under way when the time for the end is over is counted later.
				if exported, lost := r.count(t, "exported"), r.count(t, "dropped")+r.count(t, "failed"); exported != 0 || lost < made-size {
					t.Errorf("%v are exported, %v lost", exported, lost)
				}
				if n := r.log.Count("traces: spans are lost"); n > 1 || !silent && n != 1 {
					t.Errorf("%d lines:\n%s", n, r.log.String())
				}
				if n := r.log.Count("level=WARN"); n > 2 || silent && r.log.Count("traces: spans are dropped") != 1 {
					t.Errorf("%d lines:\n%s", n, r.log.String())
				}
			})
		}
	}
}

// Requests that are held open have spans that hold memory, so these take places too.
func TestSpansOfOpenRequestsTakePlaces(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	r := start(t, tracing.Options{Endpoint: collector.HTTP, SampleRatio: 1}, "OTEL_BSP_MAX_QUEUE_SIZE=3")
	var open []*tracing.Span
	for range 5 {
		if _, span := r.Begin(t.Context(), operation, none); span != nil {
			open = append(open, span)
		}
	}
	if ref := r.Batch(bucket.TracedBatch{}); len(open) != 3 || ref != (bucket.SpanRef{}) || r.count(t, "dropped") != 3 {
		t.Errorf("%d spans are open, and the batch %v; %v are dropped", len(open), ref, r.count(t, "dropped"))
	}
	for _, span := range open {
		span.End()
	}
	r.Close()
	if n := len(collector.Spans()); n != 3 || r.count(t, "exported") != 3 {
		t.Errorf("%d spans are sent", n)
	}
}

// Where a sampler of the environment decides, only spans that it takes have places,
// and can be dropped.
func TestPlacesAreForSpansThatTheSDKTakes(t *testing.T) {
	for sampler, want := range map[string]float64{"always_off": 0, "always_on": 7} {
		t.Run(sampler, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", sampler) // the SDK reads it from the process
			r := start(t, tracing.Options{Endpoint: otlptest.Start(t).HTTP, SampleRatio: -1}, "OTEL_TRACES_SAMPLER="+sampler, "OTEL_BSP_MAX_QUEUE_SIZE=3")
			defer r.Close()
			for range 10 {
				r.Begin(t.Context(), operation, none) // and never end, or places would become free
			}
			if n := r.count(t, "dropped"); n != want {
				t.Errorf("%v are dropped, want %v", n, want)
			}
		})
	}
}

// Spans that a collector refuses are counted, and megabytes of its answer fill no log.
func TestSpansThatACollectorRefusesAreCounted(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
	}))
	t.Cleanup(refuses.Close)
	r := start(t, tracing.Options{Endpoint: refuses.URL, SampleRatio: 1})
	r.make(t, 7)
	r.Close()
	if n := r.count(t, "failed"); n != 7 || r.count(t, "exported") != 0 {
		t.Errorf("%v failed", n)
	}
	if n := len(r.log.String()); n > 1000 || !strings.Contains(r.log.String(), "403") {
		t.Errorf("a log of %d bytes: %.300s", n, r.log.String())
	}
}

func TestBatchHasASpanOfItsOwn(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	r := start(t, tracing.Options{Endpoint: collector.HTTP, SampleRatio: 0})
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ref := r.Batch(bucket.TracedBatch{Node: "10.0.0.1:6379", Requests: 12, Commands: 2, Limits: 30, Start: begun, Took: time.Millisecond, Failed: true})
	r.Close()
	s := collector.Wait(t, "redis batch")
	for key, want := range map[string]any{
		"db.system.name": "redis", "ratelimit.batch.node": "10.0.0.1:6379",
		"ratelimit.batch.requests": int64(12), "ratelimit.batch.commands": int64(2), "ratelimit.batch.limits": int64(30),
	} {
		if s.Get(key) != want {
			t.Errorf("%s: %v, want %v", key, s.Get(key), want)
		}
	}
	if !slices.Equal(s.GetTraceId(), ref.Trace[:]) || !slices.Equal(s.GetSpanId(), ref.Span[:]) || s.GetStatus().GetCode() != 2 {
		t.Errorf("%v is not %v", s, ref)
	}
	if s.GetStartTimeUnixNano() != uint64(begun.UnixNano()) || s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano() != uint64(time.Millisecond) {
		t.Errorf("from %d to %d", s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
	}
}

func TestAttributesAreCutWhateverTheirMaker(t *testing.T) {
	t.Setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1")
	t.Setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100000")
	collector := otlptest.Start(t)
	r := start(t, tracing.Options{Endpoint: collector.HTTP, SampleRatio: 1})
	_, span := r.Begin(t.Context(), operation, none)
	span.Set(attribute.String("long", strings.Repeat("x", 10_000)))
	for i := range 1000 {
		span.Set(attribute.Int(strings.Repeat("k", i+1), i))
	}
	span.End()
	r.Close()
	s := collector.Spans()[0]
	if n := len(s.Get("long").(string)); n != tracing.MaxText || len(s.GetAttributes()) > 64 {
		t.Errorf("a text of %d, %d attributes", n, len(s.GetAttributes()))
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{strings.Repeat("a", tracing.MaxText), strings.Repeat("a", tracing.MaxText)},
		{strings.Repeat("a", tracing.MaxText+1), strings.Repeat("a", tracing.MaxText)},
		{strings.Repeat("a", tracing.MaxText-1) + "é", strings.Repeat("a", tracing.MaxText-1)},
		{strings.Repeat("é", tracing.MaxText), strings.Repeat("é", tracing.MaxText/2)},
	} {
		if got := tracing.Cut(c.text); got != c.want {
			t.Errorf("%d bytes are cut to %d, want %d", len(c.text), len(got), len(c.want))
		}
	}
}
