package sink_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	collogpb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// answering is a collector that gives each request one answer.
type answering struct {
	collogpb.UnimplementedLogsServiceServer
	answer *collogpb.ExportLogsServiceResponse
	err    error
}

func (a answering) Export(context.Context, *collogpb.ExportLogsServiceRequest) (*collogpb.ExportLogsServiceResponse, error) {
	return a.answer, a.err
}

// overGRPC starts it, and returns its URL.
func (a answering) overGRPC(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collogpb.RegisterLogsServiceServer(g, a)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return "http://" + l.Addr().String()
}

func (a answering) overHTTP(t *testing.T) string {
	text, err := proto.Marshal(a.answer)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(text)
	})
}

func serve(t *testing.T, answer http.HandlerFunc) string {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// sendFive sends lines in one request, and returns how many were counted as written, and
// as failed, and how many lines of log there are.
func sendFive(t *testing.T, endpoint, protocol string) (written, failed float64, told int) {
	t.Helper()
	s, log, err := sendTo(t, endpoint, protocol, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s.Write(fmt.Appendf(nil, "%d\n", i), 0, bucket.SpanRef{})
	}
	s.Close()
	if n := testutil.ToFloat64(s.Counts.Dropped); n != 0 {
		t.Errorf("%v are dropped", n)
	}
	return testutil.ToFloat64(s.Counts.Written), testutil.ToFloat64(s.Counts.Failed), log.Count("does not get all lines")
}

// Of the lines that a collector takes in part only those that it refuses are lost, as
// far as that can be.
func TestACollectorThatTakesAPart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		refused int64
		failed  float64
	}{{2, 2}, {0, 0}, {1 << 62, 5}, {-1, 0}} {
		a := answering{answer: &collogpb.ExportLogsServiceResponse{PartialSuccess: &collogpb.ExportLogsPartialSuccess{RejectedLogRecords: tc.refused, ErrorMessage: "too old (0 logs rejected)\n"}}}
		for protocol, endpoint := range map[string]string{"grpc": a.overGRPC(t), "http": a.overHTTP(t)} {
			t.Run(fmt.Sprint(protocol, tc.refused), func(t *testing.T) {
				t.Parallel()
				written, failed, told := sendFive(t, endpoint, protocol)
				if failed != tc.failed || written != 5-tc.failed || told == 1 != (tc.failed > 0) {
					t.Errorf("%v are written and %v failed, %d lines of log", written, failed, told)
				}
			})
		}
	}
}

// Whatever a collector answers, lines are counted once, and the end does not wait for as
// long as the collector says.
func TestACollectorThatRefuses(t *testing.T) {
	t.Parallel()
	refuse := func(code codes.Code, retryAfter time.Duration) answering {
		s, err := status.New(code, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
		if err != nil {
			t.Fatal(err)
		}
		return answering{err: s.Err()}
	}
	for name, endpoint := range map[string]string{
		"grpc unavailable":  answering{err: status.Error(codes.Unavailable, "no")}.overGRPC(t),
		"grpc wait an hour": refuse(codes.ResourceExhausted, time.Hour).overGRPC(t),
		"http 404":          serve(t, http.NotFound),
		"http 503":          serve(t, busy(503, "30")),
		"http 429":          serve(t, busy(429, "-5")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if written, failed, told := sendFive(t, endpoint, name[:4]); written != 0 || failed != 5 || told != 1 {
				t.Errorf("%v are written and %v failed, %d lines of log", written, failed, told)
			}
		})
	}
}

func busy(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(code)
	}
}
