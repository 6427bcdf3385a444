package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

func TestTLSConnectsOnlyToAKnownCertificate(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	t.Cleanup(certified.Close)
	d := start(t, limits, func(o *server.Options) {
		o.GRPC.TLS = &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	})
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	for name, test := range map[string]struct {
		target string
		dial   []client.Option
		want   codes.Code
	}{
		"one address":            {d.Address, []client.Option{client.TLS(&tls.Config{RootCAs: roots})}, codes.OK},
		"a list of addresses":    {d.Address + "," + d.Address, []client.Option{client.TLS(&tls.Config{RootCAs: roots})}, codes.OK},
		"in the clear":           {d.Address, nil, codes.Unavailable},
		"an unknown certificate": {d.Address, []client.Option{client.TLS(&tls.Config{RootCAs: x509.NewCertPool()})}, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, test.target, test.dial...)
			if ok, err := c.Allow(within(t), "api", client.E("much", "x")); ok != (test.want == codes.OK) || status.Code(err) != test.want {
				t.Errorf("found %v, %v", ok, err)
			}
		})
	}
}

func TestInterceptorsSeeStreamsAndGiveBacks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	see := func(method string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, method[strings.LastIndex(method, "/")+1:])
	}
	c := connect(t, start(t, limits).Address, client.DialOptions(
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, r, a any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			see(method)
			return next(ctx, method, r, a, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			see(method)
			return next(ctx, desc, cc, method, o...)
		}),
	))
	taken, err := c.Take(within(t), one("api", "user", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.GiveBack(within(t), taken); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen, " "); !strings.HasPrefix(got, "TakeStream") || !strings.Contains(got, "GiveBack") {
		t.Error(got)
	}
}

// ends counts streams that ended well, and those that did not.
type ends struct{ well, badly atomic.Int64 }

func (*ends) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*ends) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*ends) HandleConn(context.Context, stats.ConnStats)                       {}
func (e *ends) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
		switch status.Code(end.Error) {
		case codes.OK:
			e.well.Add(1)
		case codes.Canceled: // the client needed it no more, or was closed
		default:
			e.badly.Add(1)
		}
	}
}

// A daemon asks the client to leave a connection that is too old. The client
// leaves once it has its answers, before the daemon ends the connection.
func TestOldConnectionIsLeftBeforeTheDaemonEndsIt(t *testing.T) {
	t.Parallel()
	d := start(t, "domain: api\n", func(o *server.Options) {
		o.GRPC.ConnectionAge, o.GRPC.ConnectionAgeGrace = 200*time.Millisecond, patience
	})
	e := new(ends)
	c := connect(t, d.Address, client.DialOptions(grpc.WithStatsHandler(e)))
	asynctest.Eventually(t, "a stream ends", func() bool {
		for range 10 {
			if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
				t.Error(ok, err)
			}
		}
		return e.well.Load()+e.badly.Load() > 0
	})
	if e.badly.Load() > 0 {
		t.Error("the stream did not end well")
	}
}
