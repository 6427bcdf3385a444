package grpclimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/grpclimit"
	"github.com/ratelimitd/ratelimitd/client/guard/guardtest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: guardtest.WithDaemon(m), IsSettled: func() bool { return goleak.Find() == nil }})
}

func TestInterceptors(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]struct{ usual, other call }{"unary": {check, watch}, "stream": {watch, check}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guardtest.Run(t, guardtest.Framework[*grpclimit.Call, codes.Code, grpclimit.Handler]{
				Package: "grpclimit",
				New: func(c *client.Client, o grpclimit.Options) error {
					_, err := grpclimit.New(c, o)
					return err
				},
				Serve: func(t testing.TB, c *client.Client, o grpclimit.Options, h guardtest.Handler[codes.Code]) guardtest.Ask[codes.Code] {
					service := serve(t, c, o, h)
					return func(_ testing.TB, r guardtest.Request) guardtest.Response[codes.Code] {
						if r.IsOther {
							return response(calls.other(service, r.Headers...))
						}
						return response(calls.usual(service, r.Headers...))
					}
				},
				Func:          grpclimit.Func,
				Header:        grpclimit.Header,
				Method:        grpclimit.Method,
				ClientAddress: grpclimit.ClientAddress,
				ClientNetwork: grpclimit.ClientNetwork,
				HeaderOf:      func(c *grpclimit.Call, name string) string { return header(c.Context, name) },
				Responding: func(say func(grpclimit.Verdict) (codes.Code, string)) grpclimit.Handler {
					return func(_ *grpclimit.Call, v grpclimit.Verdict) error { return status.Error(say(v)) }
				},
				Denied:    guardtest.Response[codes.Code]{Status: codes.ResourceExhausted, Body: "too many requests"},
				Undecided: guardtest.Response[codes.Code]{Status: codes.Unavailable, Body: "the rate limit is not known"},
				Failed:    codes.Unauthenticated,
				Panicked:  codes.Internal,
				Own:       codes.DataLoss,
			})
		})
	}
}

// header returns the first value of a caller's metadata.
func header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func response(md metadata.MD, err error) guardtest.Response[codes.Code] {
	h := make(http.Header)
	for name, values := range md {
		h[http.CanonicalHeaderKey(name)] = values
	}
	s := status.Convert(err)
	return guardtest.Response[codes.Code]{Status: s.Code(), Header: h, Body: s.Message()}
}

// health is a service that sends the response of a handler.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	handler guardtest.Handler[codes.Code]
}

func (h *health) answer(ctx context.Context) error {
	return status.Error(h.handler(func(name string) string { return header(ctx, name) }))
}

func (h *health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{}, h.answer(ctx)
}

func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
		return err
	}
	return h.answer(stream.Context())
}

// succeed is the handler in tests that are not the suite's.
func succeed(func(string) string) (codes.Code, string) { return codes.OK, "" }

// serve runs the service behind the interceptors.
func serve(t testing.TB, c *client.Client, o grpclimit.Options, h guardtest.Handler[codes.Code]) grpc_health_v1.HealthClient {
	t.Helper()
	o.Domain = "api"
	limit, err := grpclimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	survive := func(err *error) {
		if p := recover(); p != nil {
			*err = status.Error(codes.Internal, fmt.Sprint(p))
		}
	}
	g := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer survive(&err)
			return next(ctx, r)
		}, limit.Unary),
		grpc.ChainStreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer survive(&err)
			return next(s, stream)
		}, limit.Stream),
	)
	grpc_health_v1.RegisterHealthServer(g, &health{handler: h})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); served.Wait() })
	return grpc_health_v1.NewHealthClient(conn)
}

// call calls a method, with metadata of the form "name: value".
type call func(h grpc_health_v1.HealthClient, headers ...string) (metadata.MD, error)

func check(h grpc_health_v1.HealthClient, headers ...string) (metadata.MD, error) {
	var md metadata.MD
	_, err := h.Check(with(headers), &grpc_health_v1.HealthCheckRequest{Service: "a message"}, grpc.Header(&md))
	return md, err
}

func watch(h grpc_health_v1.HealthClient, headers ...string) (metadata.MD, error) {
	stream, err := h.Watch(with(headers), &grpc_health_v1.HealthCheckRequest{Service: "a message"})
	if err != nil {
		return nil, err
	}
	md, err := stream.Header()
	for err == nil {
		_, err = stream.Recv()
	}
	if err == io.EOF {
		err = nil
	}
	return md, err
}

func with(headers []string) context.Context {
	ctx := context.Background()
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// ways are the methods, each behind an interceptor of its own.
var ways = map[string]call{"unary": check, "stream": watch}

const limits = `
domain: api
descriptors:
  - key: once
    rate_limit: {algorithm: sliding_window, requests: 1, period: 1h}
  - key: none
    rate_limit: {requests: 0, period: 1h}
  - key: message
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
`

func connect(t testing.TB) *client.Client {
	t.Helper()
	return guardtest.Connect(t, guardtest.StartDaemon(t, limits))
}

func by(parts ...grpclimit.Part) []grpclimit.Descriptor {
	return []grpclimit.Descriptor{grpclimit.By(parts...)}
}

func TestDenialHasRetryInfo(t *testing.T) {
	t.Parallel()
	c := connect(t)
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Constant("once", name))}, succeed)
			if _, err := call(h); err != nil {
				t.Fatal(err)
			}
			_, err := call(h)
			details := status.Convert(err).Details()
			if len(details) != 1 {
				t.Fatalf("details: %v", details)
			}
			if info, ok := details[0].(*errdetails.RetryInfo); !ok || info.GetRetryDelay().AsDuration() <= 59*time.Minute || info.GetRetryDelay().AsDuration() > time.Hour {
				t.Errorf("details: %v", details)
			}
		})
	}
}

func TestDenialForeverHasNoRetryInfo(t *testing.T) {
	t.Parallel()
	h := serve(t, connect(t), grpclimit.Options{Descriptors: by(grpclimit.Constant("none", "x")), Status: codes.Aborted, Body: "later"}, succeed)
	_, err := check(h)
	if s := status.Convert(err); s.Code() != codes.Aborted || s.Message() != "later" || len(s.Details()) != 0 {
		t.Errorf("found %v, %v", err, s.Details())
	}
}

func TestOnDeniedIsGivenTheCall(t *testing.T) {
	t.Parallel()
	c := connect(t)
	methods := map[string]string{"unary": "/grpc.health.v1.Health/Check", "stream": "/grpc.health.v1.Health/Watch"}
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := serve(t, c, grpclimit.Options{
				Descriptors: by(grpclimit.Constant("none", "x")),
				OnDenied: func(c *grpclimit.Call, v grpclimit.Verdict) error {
					return status.Error(codes.DataLoss, c.Method+" "+v.Result.Denier().Algorithm.String())
				},
			}, succeed)
			if _, err := call(h); status.Code(err) != codes.DataLoss || !strings.Contains(err.Error(), methods[name]+" token_bucket") {
				t.Errorf("found %v", err)
			}
		})
	}
}

// A stream is asked about when it opens, before its first message.
func TestOnlyUnaryCallsHaveAMessage(t *testing.T) {
	t.Parallel()
	h := serve(t, connect(t), grpclimit.Options{
		Descriptors: by(grpclimit.Func("message", func(c *grpclimit.Call) (string, bool) {
			r, ok := c.Request.(*grpc_health_v1.HealthCheckRequest)
			return r.GetService(), ok
		})),
		OnMissing: grpclimit.Deny,
	}, succeed)
	for i := range 3 {
		if _, err := check(h); (err == nil) != (i < 2) {
			t.Errorf("unary call %d: %v", i, err)
		}
	}
	if _, err := watch(h); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: %v", err)
	}
}
