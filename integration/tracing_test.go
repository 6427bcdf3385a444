package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
)

const (
	rlsSpan    = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	batchSpan  = "redis batch"
	aSampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	anUnsample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// soon has spans sent at once.
const soon = "OTEL_BSP_SCHEDULE_DELAY=20"

// startTraced starts a daemon of three requests a user that sends its spans to
// the collector.
func startTraced(t testing.TB, c *otlptest.Collector, env []string, args ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "limits.yaml", yearlyOf(3))
	d := launch(t, append(env, soon), append([]string{"--limits-path", dir, "--tracing-enabled", "--tracing-endpoint", c.HTTP}, args...)...)
	d.waitServing()
	return d
}

// withParent returns a context for a call with a traceparent.
func withParent(t testing.TB, traceparent string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "traceparent", traceparent), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Envoy begins a trace, by its decision, and the daemon's span is a child of
// Envoy's.
func TestSpansAreChildrenOfEnvoys(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	collector := otlptest.Start(t)
	zipkin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	t.Cleanup(zipkin.Close)
	d := startTraced(t, collector, nil)
	b := startBackend(t)
	provider := func(percent int, name, config string) string {
		return fmt.Sprintf("tracing:\n  random_sampling: {value: %d}\n  provider:\n    name: envoy.tracers.%s\n    typed_config: {%s}\n", percent, name, config)
	}
	const (
		ours = `"@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, service_name: edge, grpc_service: {envoy_grpc: {cluster_name: collector}}`
		b3   = `"@type": type.googleapis.com/envoy.config.trace.v3.ZipkinConfig, collector_cluster: zipkin, collector_endpoint: /, collector_endpoint_version: HTTP_JSON, trace_id_128bit: true`
	)
	routes := perRoute("/", userAction("user"))
	e := startEnvoy(t, configure(t, []front{
		{Name: "w3c", Domain: "api", Filter: patiently, Routes: routes, Tracing: provider(100, "opentelemetry", ours)},
		{Name: "w3c-none", Domain: "api", Filter: patiently, Routes: routes, Tracing: provider(0, "opentelemetry", ours)},
		{Name: "b3", Domain: "api", Filter: patiently, Routes: routes, Tracing: provider(100, "zipkin", b3)},
		{Name: "b3-none", Domain: "api", Filter: patiently, Routes: routes, Tracing: provider(0, "zipkin", b3)},
	}, ratelimitdAt(d.grpc), b.cluster(),
		cluster{Name: "collector", Addrs: []string{strings.TrimPrefix(collector.GRPC, "http://")}, GRPC: true},
		cluster{Name: "zipkin", Addrs: []string{strings.TrimPrefix(zipkin.URL, "http://")}}))
	for _, listener := range []string{"w3c-none", "b3-none", "w3c", "b3"} {
		if got := e.get(listener, "/", "x-user: secret-"+listener).status; got != 200 {
			t.Errorf("%s: %d", listener, got)
		}
	}
	var spans, edges []otlptest.Span
	asynctest.Eventually(t, "the spans of the daemon and of Envoy", func() bool {
		spans, edges = nil, nil
		for _, s := range collector.Spans() {
			if s.GetName() == rlsSpan && s.Resource["service.name"] == "ratelimitd" {
				spans = append(spans, s)
			} else {
				edges = append(edges, s)
			}
		}
		return len(spans) >= 2 && len(edges) >= 1
	})
	if code := d.stop(syscall.SIGINT); code != 0 {
		t.Errorf("exit %d", code)
	}
	isOfEnvoy := func(s otlptest.Span) bool {
		return slices.ContainsFunc(edges, func(edge otlptest.Span) bool {
			return edge.Resource["service.name"] == "edge" && edge.TraceHex() == s.TraceHex()
		})
	}
	if len(spans) != 2 || spans[0].ParentHex() == "" || spans[1].ParentHex() == "" || isOfEnvoy(spans[0]) == isOfEnvoy(spans[1]) {
		t.Errorf("spans of the daemon: %v\nof Envoy: %v", spans, edges)
	}
	for _, s := range spans {
		if s.Get("ratelimit.domain") != "api" || s.Get("ratelimit.code") != "OK" {
			t.Error(s)
		}
	}
	for _, listener := range []string{"w3c", "w3c-none", "b3", "b3-none"} {
		if collector.Holds("secret-" + listener) {
			t.Errorf("the value of %s was sent", listener)
		}
	}
}

// By the name of that service its variables count, and those of the exporter.
func TestEnvoyEnvironmentMakesSpans(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.Start(t)
			root, _ := runtimeRoot(t, yearlyOf(3))
			endpoint := map[string]string{"http": collector.HTTP, "grpc": collector.GRPC}[protocol]
			d := startAsEnvoy(t, envoyEnv(root, "BACKEND_TYPE=memory", "TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL="+protocol,
				"TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=gateways", "TRACING_SERVICE_INSTANCE_ID=pod-1", "TRACING_SAMPLING_RATE=0.0",
				"OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_SERVICE_NAME=other", "OTEL_TRACES_SAMPLER=always_off", "OTEL_PROPAGATORS=none", soon))
			d.ask("api", 1, "user=x") // no parent: not sampled
			if _, err := d.client.ShouldRateLimit(withParent(t, aSampled), request("api", 1, "user=x")); err != nil {
				t.Fatal(err)
			}
			s := collector.Wait(t, rlsSpan)
			for key, want := range map[string]string{"service.name": "envoy-ratelimit", "service.namespace": "gateways", "service.instance.id": "pod-1"} {
				if s.Resource[key] != want {
					t.Errorf("%s: %v, want %s", key, s.Resource[key], want)
				}
			}
			if n := len(collector.Spans()); n != 1 || s.OverGRPC != (protocol == "grpc") {
				t.Errorf("%d spans, over gRPC %t", n, s.OverGRPC)
			}
		})
	}
}

func TestVariableThatCannotBeMeantEndsTheStart(t *testing.T) {
	t.Parallel()
	_, stderr, code := commandEnv(t, []string{"OTEL_EXPORTER_OTLP_PROTOCOL=udp"}, "serve", "--limits-path", "../deploy/limits", "--tracing-enabled")
	if code == 0 || !strings.Contains(stderr, `OTEL_EXPORTER_OTLP_PROTOCOL: found "udp"; allowed: grpc or http/protobuf`) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
