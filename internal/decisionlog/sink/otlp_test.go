package sink_test

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
)

func sendTo(t *testing.T, endpoint, protocol string, environ map[string]string) (*sink.OTLP, *asynctest.Buffer, error) {
	t.Helper()
	log := new(asynctest.Buffer)
	s, err := sink.NewOTLP(t.Context(), sink.OTLPOptions{
		Endpoint: endpoint, Protocol: protocol, Environment: func(name string) string { return environ[name] }, Buffer: 1 << 20,
		Resource: resource.NewSchemaless(attribute.String("service.name", "ratelimitd")),
		Counts:   sink.NewCounts(sink.NewLines(prometheus.NewRegistry(), "lines", "Lines.")), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	return s, log, err
}

func TestLinesAreLogsOfACollector(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := otlptest.Start(t)
			s, _, err := sendTo(t, map[string]string{"http": c.HTTP, "grpc": c.GRPC}[protocol], "", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": map[string]string{"http": "http/protobuf", "grpc": "grpc"}[protocol]})
			if err != nil {
				t.Fatal(err)
			}
			const at = 1795392000000001
			span := bucket.SpanRef{Trace: [16]byte{0x0a, 15: 1}, Span: [8]byte{7: 2}}
			s.Write([]byte("{\"v\":1}\n"), at, span)
			const others = 1500 // several times as many as are sent together
			for i := range others {
				s.Write(fmt.Appendf(nil, "{\"n\":%d}\n", i), at, bucket.SpanRef{})
			}
			s.Close()
			s.Write([]byte("late\n"), at, span)
			logs := c.Logs()
			if len(logs) != others+1 || testutil.ToFloat64(s.Counts.Written) != others+1 || testutil.ToFloat64(s.Counts.Dropped) != 1 {
				t.Fatalf("%d logs came, %v are counted as sent and %v as dropped", len(logs), testutil.ToFloat64(s.Counts.Written), testutil.ToFloat64(s.Counts.Dropped))
			}
			first, last := logs[0], logs[others]
			if first.Text() != `{"v":1}` || first.TraceHex() != "0a000000000000000000000000000001" || first.GetSpanId()[7] != 2 || first.GetTimeUnixNano() != at*1000 ||
				first.Resource["service.name"] != "ratelimitd" || first.OverGRPC != (protocol == "grpc") {
				t.Errorf("the first is %+v", first)
			}
			if last.Text() != fmt.Sprintf(`{"n":%d}`, others-1) || strings.Trim(last.TraceHex(), "0") != "" {
				t.Errorf("the last is %+v", last)
			}
		})
	}
}

// A collector that accepts and never answers: what does not fit is dropped, what was
// sent fails, and the end does not wait for long.
func TestACollectorThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, log, err := sendTo(t, "http://"+l.Addr().String(), "http", nil)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 1023) + "\n")
	const lines = 3000
	for range lines {
		s.Write(line, 0, bucket.SpanRef{})
	}
	if n := testutil.ToFloat64(s.Counts.Dropped); n < lines/2 {
		t.Errorf("%v of %d were dropped", n, lines)
	}
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the end took %v", took)
	}
	if sum := testutil.ToFloat64(s.Counts.Dropped) + testutil.ToFloat64(s.Counts.Failed); sum != lines {
		t.Errorf("%v are counted, want %d", sum, lines)
	}
	if n := log.Count("does not get all lines"); n != 1 {
		t.Errorf("%d lines of log:\n%s", n, log)
	}
}

func TestAnUnknownProtocolOfLogs(t *testing.T) {
	t.Parallel()
	_, _, err := sendTo(t, "http://127.0.0.1:1", "", map[string]string{"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "udp"})
	if err == nil || !strings.Contains(err.Error(), `found "udp"; allowed: grpc or http/protobuf`) {
		t.Error(err)
	}
}
