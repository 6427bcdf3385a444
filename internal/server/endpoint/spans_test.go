package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const traceLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {name: per-user, algorithm: fixed_window, requests: 2, period: 1h}}
  - {key: plan, value: free, rate_limit: {algorithm: gcra, requests: 0, period: 1h}}
  - {key: open, rate_limit: {unlimited: true}}
`

// The spans of a caller, as a traceparent has them.
const (
	callerTrace    = "0af7651916cd43dd8448eb211c80319c"
	callerSpan     = "b7ad6b7169203331"
	sampledParent  = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampledTrace = "00-" + callerTrace + "-" + callerSpan + "-00"
)

const (
	shouldRateLimit = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	takeStream      = "ratelimit.v1.RateLimitService/TakeStream"
)

// traced is a daemon with a collector.
type traced struct {
	*servertest.Daemon
	collector *otlptest.Collector
	tracer    *tracing.Tracer
}

// startTraced starts a daemon whose tracer samples by the parent, and else by the
// ratio.
func startTraced(t testing.TB, ratio float64, change ...func(*tracing.Options, *server.Options)) *traced {
	t.Helper()
	d := &traced{collector: otlptest.Start(t)}
	o := tracing.Options{
		Endpoint: d.collector.HTTP, SampleRatio: ratio, Environment: func(string) string { return "" },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
	d.Daemon = servertest.Start(t, traceLimits, func(s *server.Options) {
		for _, c := range change {
			c(&o, s)
		}
		var err error
		if d.tracer, err = tracing.New(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		s.Tracer = d.tracer
	})
	return d
}

// spans returns what was sent. No span is sent after it.
func (d *traced) spans() []otlptest.Span {
	d.End()
	d.tracer.Close()
	return d.collector.Spans()
}

// span returns the only span that was sent.
func (d *traced) span() otlptest.Span {
	d.T.Helper()
	spans := d.spans()
	if len(spans) != 1 {
		d.T.Fatalf("%d spans: %v", len(spans), spans)
	}
	return spans[0]
}

func (d *traced) askWith(r *rlsv3.RateLimitRequest, headers ...string) {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), headers...), servertest.Patience)
	defer cancel()
	if _, err := d.RLS.ShouldRateLimit(ctx, r); err != nil {
		d.T.Error(err)
	}
}

func wantAttributes(t testing.TB, s otlptest.Span, want map[string]any) {
	t.Helper()
	for key, v := range want {
		got := s.Get(key)
		if list, ok := got.([]any); ok {
			if wanted, ok := v.([]any); !ok || !slices.Equal(list, wanted) {
				t.Errorf("%s: %v, want %v", key, got, v)
			}
		} else if got != v {
			t.Errorf("%s: %v (%T), want %v", key, got, got, v)
		}
	}
}

func wantChild(t testing.TB, s otlptest.Span) {
	t.Helper()
	if s.TraceHex() != callerTrace || s.ParentHex() != callerSpan || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("%s of kind %s in the trace %s has the parent %s", s.GetName(), s.GetKind(), s.TraceHex(), s.ParentHex())
	}
}

func TestParentDecidesWhetherThereIsASpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		ratio   float64
		headers []string
		want    string // the parent, "root" for none, or "" for no span
	}{
		{"W3C, sampled", 0, []string{"traceparent", sampledParent}, callerSpan},
		{"W3C, not sampled", 1, []string{"traceparent", unsampledTrace}, ""},
		{"B3 in one header, sampled", 0, []string{"b3", callerTrace + "-" + callerSpan + "-1"}, callerSpan},
		{"B3 in one header, debug", 0, []string{"b3", callerTrace + "-" + callerSpan + "-d"}, callerSpan},
		{"B3 in one header, not sampled", 1, []string{"b3", callerTrace + "-" + callerSpan + "-0"}, ""},
		{"B3 in several headers, sampled", 0, []string{"x-b3-traceid", callerTrace, "x-b3-spanid", callerSpan, "x-b3-sampled", "1"}, callerSpan},
		{"B3 in several headers, not sampled", 1, []string{"x-b3-traceid", callerTrace, "x-b3-spanid", callerSpan, "x-b3-sampled", "0"}, ""},
		{"B3 in one header, refused without a span", 1, []string{"b3", "0"}, ""},
		{"B3 in several headers, refused without a span", 1, []string{"x-b3-sampled", "0"}, ""},
		{"B3 in several headers, refused as it once was spelt", 1, []string{"x-b3-sampled", "false"}, ""},
		{"B3 in one header, accepted without a span", 0, []string{"b3", "1"}, ""},
		{"W3C goes before a refusal by B3", 0, []string{"traceparent", sampledParent, "b3", "0"}, callerSpan},
		{"none", 1, nil, "root"},
		{"none, by a ratio of 0", 0, nil, ""},
		{"a traceparent that is none", 1, []string{"traceparent", strings.Repeat("0", 55)}, "root"},
		{"a traceparent that is too long", 0, []string{"traceparent", sampledParent + strings.Repeat("-", 600)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, c.ratio)
			d.askWith(servertest.Request("api", 1, "user=alice"), c.headers...)
			got := ""
			if spans := d.spans(); len(spans) > 0 {
				if got = spans[0].ParentHex(); got == "" {
					got = "root"
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyNamedPropagatorsAreRead(t *testing.T) {
	t.Parallel()
	d := startTraced(t, 0, func(o *tracing.Options, _ *server.Options) { o.Propagators = []string{"b3"} })
	d.askWith(servertest.Request("api", 1, "user=alice"), "traceparent", sampledParent)
	if spans := d.spans(); len(spans) > 0 {
		t.Error(spans)
	}
}

func TestSpanSaysWhatWasDecided(t *testing.T) {
	t.Parallel()
	own := servertest.Overriding(t, 1, "user=bob", "5/HOUR")
	for _, c := range []struct {
		name    string
		request *rlsv3.RateLimitRequest
		want    map[string]any
	}{
		{"allowed", servertest.Request("api", 1, "user=alice", "open=x", "user=bob", "nothing=x"), map[string]any{
			"ratelimit.domain": "api", "ratelimit.descriptors": int64(4), "ratelimit.code": "OK", "ratelimit.rules": []any{"user", "open"},
			"ratelimit.denied_by.rule": nil, "ratelimit.denied_by.limit": nil, "ratelimit.degraded": nil, "ratelimit.values": nil,
			"rpc.system": "grpc", "rpc.service": "envoy.service.ratelimit.v3.RateLimitService", "rpc.method": "ShouldRateLimit", "rpc.grpc.status_code": int64(0),
		}},
		{"denied by a named limit", servertest.Request("api", 3, "open=x", "user=alice"), map[string]any{
			"ratelimit.code": "OVER_LIMIT", "ratelimit.denied_by.rule": "user", "ratelimit.denied_by.limit": "per-user", "rpc.grpc.status_code": int64(0),
		}},
		{"denied by a limit without a name", servertest.Request("api", 1, "user=alice", "plan=free"), map[string]any{
			"ratelimit.code": "OVER_LIMIT", "ratelimit.denied_by.rule": "plan=free", "ratelimit.denied_by.limit": "gcra",
		}},
		{"denied by a descriptor's own limit", func() *rlsv3.RateLimitRequest { own.HitsAddend = 6; return own }(), map[string]any{
			"ratelimit.code": "OVER_LIMIT", "ratelimit.denied_by.rule": "user", "ratelimit.denied_by.limit": "override",
		}},
		{"an unknown domain", servertest.Request("nowhere", 1, "user=alice"), map[string]any{
			"ratelimit.domain": "nowhere", "ratelimit.code": "OK", "ratelimit.rules": nil,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, 1)
			d.askWith(c.request)
			s := d.span()
			if s.GetName() != shouldRateLimit || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
				t.Errorf("%s, %v", s.GetName(), s.GetStatus())
			}
			wantAttributes(t, s, c.want)
		})
	}
}

// A store says why it did not decide, and how long it took.
func TestSpanSaysWhatTheStoreTells(t *testing.T) {
	t.Parallel()
	ref := bucket.SpanRef{Trace: [16]byte{1}, Span: [8]byte{2}}
	d := startTraced(t, 1, func(_ *tracing.Options, o *server.Options) {
		o.Store = &servertest.FakeStore{OnTake: func(ctx context.Context, _ []bucket.Hit, decisions []bucket.Decision) error {
			trace := bucket.TraceOf(ctx)
			trace.Queued, trace.Asked, trace.Degraded, trace.Known = 250*time.Millisecond, time.Second, "timeout", true
			for range 2 * bucket.MaxTraceBatches {
				trace.AddBatch(ref)
			}
			trace.AddBatch(bucket.SpanRef{})
			decisions[0].Degraded = true
			return nil
		}}
	})
	d.askWith(servertest.Request("api", 1, "user=alice"))
	s := d.span()
	wantAttributes(t, s, map[string]any{
		"ratelimit.degraded": true, "ratelimit.degraded.reason": "timeout", "ratelimit.known_denial": true,
		"ratelimit.queue.seconds": .25, "ratelimit.redis.seconds": 1.0,
	})
	links := s.GetLinks()
	if len(links) != bucket.MaxTraceBatches || !slices.Equal(links[0].GetTraceId(), ref.Trace[:]) || !slices.Equal(links[0].GetSpanId(), ref.Span[:]) {
		t.Errorf("%d links: %v", len(links), links)
	}
}

// The text of an error may quote what the caller sent.
func TestSpanOfAFailureHasItsCodeAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		store      bucket.Store
		request    *rlsv3.RateLimitRequest
	}{
		{"the store fails", "Unavailable", servertest.Failing("secret-1"), servertest.Request("api", 1, "user=secret-2")},
		{"the request cannot be meant", "InvalidArgument", new(servertest.FakeStore), servertest.Request("", 1, "user=secret-3")},
		{"the store panics", "Internal", &servertest.FakeStore{OnTake: func(context.Context, []bucket.Hit, []bucket.Decision) error {
			panic(errors.New("secret-4"))
		}}, servertest.Request("api", 1, "user=secret-5")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, 1, func(_ *tracing.Options, o *server.Options) { o.Store = c.store })
			if _, err := d.Try(c.request); err == nil {
				t.Fatal("no error")
			}
			s := d.span()
			if s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || s.GetStatus().GetMessage() != c.code || s.Get("ratelimit.code") != nil {
				t.Error(s)
			}
			if d.collector.Holds("secret") {
				t.Errorf("it has text of the caller or of the error: %v", s)
			}
		})
	}
}

// Values are names, addresses and tokens of people.
func TestNoValueOfACallerIsSentUnlessAsked(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		t.Run(map[bool]string{false: "by default", true: "asked"}[asked], func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, 1, func(o *tracing.Options, s *server.Options) {
				o.Values = asked
				servertest.WithAuth(t, servertest.AuthFile("nginx", "key: user, from: header, name: X-User"))(s)
			})
			d.askWith(servertest.Request("api", 1, "user=secret-1", "nothing=secret-2,more=secret-3"), "baggage", "who=secret-baggage", "x-user", "secret-header")
			d.Take("user=secret-4")
			d.Post(servertest.ToJSON(t, servertest.Request("api", 1, "user=secret-5")))
			d.Auth("127.0.0.1", "GET", "n", "X-User: secret-6")
			d.Auth("127.0.0.1", "GET", "n", "X-User: secret-6", "Traceparent: secret-7", "Baggage: a=secret-8")
			if n := len(d.spans()); n != 5 {
				t.Errorf("%d spans", n)
			}
			if d.collector.Holds("secret") != asked {
				t.Errorf("secrets are sent: %t", !asked)
			}
			for _, never := range []string{"secret-baggage", "secret-header", "secret-7", "secret-8"} {
				if d.collector.Holds(never) {
					t.Errorf("%s is sent", never)
				}
			}
			if asked && !d.collector.Holds("nothing=secret-2|more=secret-3") {
				t.Error("the values are not sent")
			}
		})
	}
}

// Text that a caller sends is cut, and text that is not UTF-8 does not lose a batch of
// spans.
func TestSpanIsBoundedWhateverACallerSends(t *testing.T) {
	t.Parallel()
	d := startTraced(t, 1, func(o *tracing.Options, _ *server.Options) { o.Values = true })
	long := servertest.Request(strings.Repeat("é", 5000), 1)
	for range 100 {
		long.Descriptors = append(long.Descriptors, servertest.Request("", 0, "user="+strings.Repeat("v", 400)).GetDescriptors()...)
	}
	d.askWith(long, "traceparent", sampledParent, "tracestate", strings.Repeat("a=b,", 200)+"z=z")
	var answer []byte
	notUTF8 := []byte("\n\x03api\x12\x0c\n\x0a\n\x04user\x12\x02\xff\xfe")
	if err := d.Conn.Invoke(t.Context(), "/"+shouldRateLimit, notUTF8, &answer, grpc.ForceCodec(servertest.RawCodec{})); err != nil {
		t.Error(err)
	}
	total := 0
	spans := d.spans()
	for _, s := range spans {
		for _, a := range s.GetAttributes() {
			total += len(a.GetValue().String())
			if list := a.GetValue().GetArrayValue().GetValues(); len(list) > tracing.MaxTexts {
				t.Errorf("%s has %d texts", a.GetKey(), len(list))
			}
		}
		if n := len(s.GetTraceState()); n > 512 {
			t.Errorf("a tracestate of %d bytes", n)
		}
	}
	if len(spans) != 2 || total > 16<<10 {
		t.Errorf("%d spans with attributes of %d bytes", len(spans), total)
	}
}

func TestHTTPEndpointsHaveSpans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, body, name string
		headers                  []string
		want                     map[string]any
	}{
		{"POST", "/json", servertest.ToJSON(t, servertest.Request("api", 1, "user=alice")), "POST /json", nil,
			map[string]any{"ratelimit.code": "OK", "ratelimit.rules": []any{"user"}, "http.response.status_code": int64(200), "http.route": "/json", "http.request.method": "POST"}},
		{"POST", "/json", servertest.ToJSON(t, servertest.Request("api", 1, "plan=free")), "POST /json", nil,
			map[string]any{"ratelimit.code": "OVER_LIMIT", "ratelimit.denied_by.rule": "plan=free", "http.response.status_code": int64(429)}},
		{"POST", "/json", "{", "POST /json", nil, map[string]any{"http.response.status_code": int64(400), "ratelimit.domain": nil}},
		{"POST", "/v1/take", `{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`, "POST /v1/take", nil,
			map[string]any{"ratelimit.code": "OK", "ratelimit.domain": "api", "http.response.status_code": int64(200)}},
		{"POST", "/v1/give-back", `{}`, "POST /v1/give-back", nil, map[string]any{"http.response.status_code": int64(400)}},
		{"GET", "/auth/n", "", "/auth/{name}", []string{"X-User", "alice"},
			map[string]any{"ratelimit.domain": "d", "ratelimit.code": "OK", "http.response.status_code": int64(200), "http.route": "/auth/{name}"}},
	} {
		t.Run(c.path+" "+c.body, func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, 0, func(_ *tracing.Options, s *server.Options) {
				servertest.WithAuth(t, servertest.AuthFile("nginx", "key: user, from: header, name: X-User"))(s)
			})
			for _, parent := range []string{sampledParent, unsampledTrace} {
				r, err := http.NewRequest(c.method, "http://"+d.Server.Address("http")+c.path, strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Traceparent", parent)
				for i := 0; i < len(c.headers); i += 2 {
					r.Header.Set(c.headers[i], c.headers[i+1])
				}
				response, err := d.Client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
			}
			s := d.span()
			wantChild(t, s)
			if s.GetName() != c.name {
				t.Errorf("it is called %s", s.GetName())
			}
			wantAttributes(t, s, c.want)
		})
	}
}

// Health checks and the like have no span.
func TestOtherRequestsHaveNoSpan(t *testing.T) {
	t.Parallel()
	d := startTraced(t, 1)
	d.Check("")
	d.Get("http", "/healthcheck")
	d.Get("http", "/openapi.yaml")
	d.Get("http", "/none")
	if spans := d.spans(); len(spans) > 0 {
		t.Error(spans)
	}
}

func TestEachSampledTakeOfAStreamHasASpan(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(map[bool]string{false: "in turn", true: "at the same time"}[waits], func(t *testing.T) {
			t.Parallel()
			// A stream has no span for takes without a traceparent, whatever the ratio
			// is.
			d := startTraced(t, 1, func(_ *tracing.Options, o *server.Options) { o.RemoteStore = waits })
			stream, err := d.API().TakeStream(metadata.AppendToOutgoingContext(t.Context(), "traceparent", sampledParent))
			if err != nil {
				t.Fatal(err)
			}
			message := new(ratelimitv1.TakeStreamRequest)
			for i, parent := range []string{"", sampledParent, unsampledTrace, "00-x", strings.Repeat("0", 55), sampledParent + "-more", strings.Repeat("x", 9000)} {
				message.Takes = append(message.Takes, &ratelimitv1.NumberedTake{Number: uint64(i), Take: servertest.Taking("user=secret"), Traceparent: parent})
			}
			if err := errors.Join(stream.Send(message), stream.CloseSend()); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < len(message.GetTakes()); {
				answers, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range answers.GetResults() {
					if r.GetResult().GetError() != nil {
						t.Error(r)
					}
					n++
				}
			}
			s := d.span()
			wantChild(t, s)
			wantAttributes(t, s, map[string]any{"ratelimit.domain": "api", "ratelimit.rules": []any{"user"}, "rpc.method": "TakeStream"})
			if s.GetName() != takeStream || d.collector.Holds("secret") {
				t.Error(s)
			}
		})
	}
}

// The takes of a TakeMany have one caller, and one span in its trace.
func TestTakeManyHasOneSpan(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(map[bool]string{false: "in turn", true: "at the same time"}[waits], func(t *testing.T) {
			t.Parallel()
			d := startTraced(t, 0, func(_ *tracing.Options, o *server.Options) { o.RemoteStore = waits })
			r := &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{servertest.Taking("user=secret"), servertest.Taking("open=secret"), servertest.Taking("plan=free"), servertest.Taking("plan=free"), {}}}
			answer, err := d.API().TakeMany(metadata.AppendToOutgoingContext(t.Context(), "traceparent", sampledParent), r)
			if err != nil || len(answer.GetResults()) != 5 {
				t.Fatal(answer, err)
			}
			s := d.span()
			wantChild(t, s)
			wantAttributes(t, s, map[string]any{
				"ratelimit.takes": int64(5), "ratelimit.takes.denied": int64(2), "ratelimit.takes.failed": int64(1), "ratelimit.descriptors": int64(4),
				"ratelimit.domain": "api", "ratelimit.rules": []any{"user", "open", "plan=free"}, "ratelimit.code": "OVER_LIMIT",
				"ratelimit.denied_by.rule": "plan=free", "ratelimit.denied_by.limit": "gcra", "rpc.method": "TakeMany", "rpc.grpc.status_code": int64(0),
			})
			if s.GetStatus().GetMessage() != "InvalidArgument" || d.collector.Holds("secret") {
				t.Error(s)
			}
		})
	}
}

// Whatever a TakeMany asks, its span holds no more than other spans.
func TestTheSpanOfAFullTakeManyIsBounded(t *testing.T) {
	t.Parallel()
	d := startTraced(t, 1, func(o *tracing.Options, _ *server.Options) { o.Values = true })
	r := new(ratelimitv1.TakeManyRequest)
	for i := range 100 {
		r.Takes = append(r.Takes, servertest.Taking(fmt.Sprintf("user=%d%s", i, strings.Repeat("x", 1000))))
		r.Takes[i].Domain = fmt.Sprint("domain-", i)
	}
	if _, err := d.API().TakeMany(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s := d.span()
	if list, _ := s.Get("ratelimit.values").([]any); len(list) != tracing.MaxTexts || s.Get("ratelimit.takes") != int64(100) || s.Get("ratelimit.domain") != nil {
		t.Errorf("%d values, %v", len(list), s)
	}
}
