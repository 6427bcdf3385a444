package grpclimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limits = `
domain: api
descriptors:
  - key: user
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: method
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: ip
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: failed
    rate_limit: {algorithm: sliding_window, requests: 3, period: 1h}
  - key: none
    rate_limit: {requests: 0, period: 1h}
`

func connect(t testing.TB, target string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(target, append([]client.Option{client.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// health is a service that fails as its caller wants, and panics at Internal.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	served atomic.Int64
}

func wanted(service string) error {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if service == code.String() && code != codes.OK {
			return status.Error(code, "as wanted")
		}
	}
	if service == "panic" {
		panic("as wanted")
	}
	return nil
}

func (h *health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.served.Add(1)
	return &grpc_health_v1.HealthCheckResponse{}, wanted(r.GetService())
}

func (h *health) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	h.served.Add(1)
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
		return err
	}
	return wanted(r.GetService())
}

// serve runs the service behind the interceptors.
func serve(t testing.TB, c *client.Client, o grpclimit.Options) (*health, grpc_health_v1.HealthClient) {
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
	h := new(health)
	grpc_health_v1.RegisterHealthServer(g, h)
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
	return h, grpc_health_v1.NewHealthClient(conn)
}

func by(parts ...grpclimit.Part) []grpclimit.Descriptor {
	return []grpclimit.Descriptor{grpclimit.By(parts...)}
}

// check calls the unary method with metadata of the form "name: value".
func check(h grpc_health_v1.HealthClient, service string, headers ...string) (metadata.MD, error) {
	var md metadata.MD
	_, err := h.Check(with(headers), &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.Header(&md))
	return md, err
}

// watch calls the streaming method.
func watch(h grpc_health_v1.HealthClient, service string, headers ...string) (metadata.MD, error) {
	stream, err := h.Watch(with(headers), &grpc_health_v1.HealthCheckRequest{Service: service})
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

var ways = map[string]func(grpc_health_v1.HealthClient, string, ...string) (metadata.MD, error){"unary": check, "stream": watch}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, daemontest.Start(t, limits).Address)
			service, h := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Header("user", "X-User"))})
			for i, want := range []string{"1", "0"} {
				md, err := call(h, "", "x-user: alice")
				if err != nil || fmt.Sprint(md.Get("x-ratelimit-limit"), md.Get("x-ratelimit-remaining"), md.Get("x-ratelimit-reset"), md.Get("retry-after")) != "[2] ["+want+"] [3600] []" {
					t.Errorf("call %d: %v, %v", i, md, err)
				}
			}
			md, err := call(h, "", "x-user: alice")
			if status.Code(err) != codes.ResourceExhausted || len(md.Get("retry-after")) != 1 || md.Get("x-ratelimit-remaining")[0] != "0" {
				t.Errorf("denied: %v, %v", md, err)
			}
			details := status.Convert(err).Details()
			if len(details) != 1 {
				t.Fatalf("details: %v", details)
			}
			if info, ok := details[0].(*errdetails.RetryInfo); !ok || info.GetRetryDelay().AsDuration() <= 59*time.Minute || info.GetRetryDelay().AsDuration() > time.Hour {
				t.Errorf("details: %v", details)
			}
			if n := service.served.Load(); n != 2 {
				t.Errorf("%d were served", n)
			}
		})
	}
}

func TestWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	_, methods := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Method("method"))})
	_, proxied := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.ClientAddress("ip", netip.MustParsePrefix("127.0.0.0/8")))})
	_, network := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.ClientNetwork("ip", 16, 64))})
	_, direct := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.ClientAddress("ip"))})
	_, messages := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Func("user", func(c *grpclimit.Call) (string, bool) {
		r, ok := c.Request.(*grpc_health_v1.HealthCheckRequest)
		return r.GetService(), ok
	})), OnMissing: grpclimit.Deny})
	for i := range 3 {
		from := fmt.Sprintf("x-forwarded-for: 203.0.113.%d, 198.51.100.7", i)
		for name, h := range map[string]grpc_health_v1.HealthClient{"methods": methods, "proxied": proxied, "direct": direct, "network": network, "messages": messages} {
			_, err := check(h, "same", from)
			if (err == nil) != (i < 2) {
				t.Errorf("%s, %d: %v", name, i, err)
			}
		}
	}
	if _, err := watch(methods, ""); err != nil {
		t.Errorf("another method: %v", err)
	}
	if _, err := watch(messages, ""); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream has no message: %v", err)
	}
}

func TestCountIf(t *testing.T) {
	t.Parallel()
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, daemontest.Start(t, limits).Address)
			service, h := serve(t, c, grpclimit.Options{
				Descriptors: by(grpclimit.Header("failed", "x-user")),
				CountIf:     func(code codes.Code) bool { return code != codes.OK },
			})
			for range 10 {
				if _, err := call(h, "", "x-user: good"); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []codes.Code{codes.Unauthenticated, codes.Internal, codes.Unauthenticated, codes.ResourceExhausted} {
				ask := "Unauthenticated"
				if i == 1 {
					ask = "panic"
				}
				if _, err := call(h, ask, "x-user: bad"); status.Code(err) != want {
					t.Errorf("call %d: %v", i, err)
				}
			}
			service.served.Store(0)
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() { _, _ = call(h, "Unauthenticated", "x-user: evil") })
			}
			all.Wait()
			if n := service.served.Load(); n != 3 {
				t.Errorf("%d of 30 parallel wrong guesses were tried, want 3", n)
			}
		})
	}
}

func TestDenialsAndFailures(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	_, h := serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Constant("none", "x")), Status: codes.Aborted, Body: "later"})
	_, err := check(h, "")
	if s := status.Convert(err); s.Code() != codes.Aborted || s.Message() != "later" || len(s.Details()) != 0 {
		t.Errorf("never: %v", err)
	}
	_, h = serve(t, c, grpclimit.Options{Descriptors: by(grpclimit.Constant("none", "x")), OnDenied: func(c *grpclimit.Call, v grpclimit.Verdict) error {
		return status.Error(codes.DataLoss, c.Method+" "+v.Result.Denier().Algorithm.String())
	}})
	if _, err := check(h, ""); status.Code(err) != codes.DataLoss || !strings.Contains(err.Error(), "/grpc.health.v1.Health/Check token_bucket") {
		t.Errorf("a handler of one's own: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	away := connect(t, l.Addr().String())
	for want, choice := range map[codes.Code]client.Failure{
		codes.Unavailable:       client.FailError(),
		codes.OK:                client.FailAllow(),
		codes.ResourceExhausted: client.FailDeny(),
	} {
		_, h = serve(t, away, grpclimit.Options{Descriptors: by(grpclimit.Constant("user", "x")), OnFailure: choice})
		if _, err := check(h, ""); status.Code(err) != want {
			t.Errorf("%v: %v", choice, err)
		}
	}
	if _, err := grpclimit.New(c, grpclimit.Options{Domain: "a"}); err == nil || !strings.HasPrefix(err.Error(), "grpclimit: descriptors is empty") {
		t.Error(err)
	}
}
