// Package otlptest is a collector of OpenTelemetry for tests, which keeps the traces and
// logs that it is sent over gRPC and HTTP. It imports asynctest.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	logcollectorpb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as exporters may send
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// Collector runs until its test ends. Its methods may be called concurrently.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	// GRPC and HTTP are the URLs of its ports.
	GRPC, HTTP string

	mu    sync.Mutex
	spans []Span
	logs  []Log
	bytes []byte
}

// Span is a span as it came.
type Span struct {
	*tracepb.Span
	// Resource has the attributes of its resource.
	Resource map[string]any
	// OverGRPC is whether it came so, or over HTTP.
	OverGRPC bool
}

// Start starts a collector.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := new(Collector)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(g, c)
	logcollectorpb.RegisterLogsServiceServer(g, logsOver{of: c})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var request collectorpb.ExportTraceServiceRequest
		if receive(w, r, &request) {
			c.keep(&request, false)
		}
	})
	mux.HandleFunc("POST /v1/logs", func(w http.ResponseWriter, r *http.Request) {
		var request logcollectorpb.ExportLogsServiceRequest
		if receive(w, r, &request) {
			c.keepLogs(&request, false)
		}
	})
	h := httptest.NewServer(mux)
	t.Cleanup(func() {
		h.Close()
		g.Stop()
		// A short test may stop it before it serves.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	c.GRPC, c.HTTP = "http://"+l.Addr().String(), h.URL
	return c
}

// Export implements the service of OTLP.
func (c *Collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.keep(r, true)
	return new(collectorpb.ExportTraceServiceResponse), nil
}

// receive reads the request of a post, and begins the answer. It returns false if it
// refuses it.
func receive(w http.ResponseWriter, r *http.Request, request proto.Message) bool {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return false
		}
		body = zipped
	}
	text, err := io.ReadAll(body)
	if err == nil {
		err = proto.Unmarshal(text, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	return true
}

func (c *Collector) keep(r *collectorpb.ExportTraceServiceRequest, overGRPC bool) {
	text, err := proto.Marshal(r)
	if err != nil {
		panic(err) // it has just been read
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = append(c.bytes, text...)
	for _, of := range r.GetResourceSpans() {
		resource := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{Span: s, Resource: resource, OverGRPC: overGRPC})
			}
		}
	}
}

// Spans returns the spans that came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Wait waits for a span of that name, and returns the first.
func (c *Collector) Wait(t testing.TB, name string) Span {
	t.Helper()
	var found Span
	asynctest.Eventually(t, "a span "+name, func() bool {
		for _, s := range c.Spans() {
			if s.GetName() == name {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// Holds reports whether a text stands anywhere in what came.
func (c *Collector) Holds(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.bytes, []byte(text))
}

// Get returns an attribute: a string, bool, int64 or float64, a []any of them, or
// nil if it is not there.
func (s Span) Get(key string) any { return attributes(s.GetAttributes())[key] }

// TraceHex, SpanHex and ParentHex are the ids as a traceparent has them.
func (s Span) TraceHex() string  { return hex.EncodeToString(s.GetTraceId()) }
func (s Span) SpanHex() string   { return hex.EncodeToString(s.GetSpanId()) }
func (s Span) ParentHex() string { return hex.EncodeToString(s.GetParentSpanId()) }

func attributes(list []*commonpb.KeyValue) map[string]any {
	m := make(map[string]any, len(list))
	for _, a := range list {
		m[a.GetKey()] = value(a.GetValue())
	}
	return m
}

func value(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_ArrayValue:
		var list []any
		for _, item := range v.ArrayValue.GetValues() {
			list = append(list, value(item))
		}
		return list
	}
	return nil
}
