package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

func TestTLSConnectsOnlyToAKnownCertificate(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	t.Cleanup(certified.Close)
	d := daemontest.Start(t, limits, func(o *server.Options) {
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
	c := connect(t, daemontest.Start(t, limits).Address, client.DialOptions(
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
