package xds_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

const nodeID = "envoy-ratelimit"

// management is a management server on a port of its own.
type management struct {
	t       *testing.T
	cache   cache.SnapshotCache
	address string
	tls     *tls.Config

	mu       sync.Mutex
	grpc     *grpc.Server
	requests []asked
	headers  []metadata.MD
}

// asked is a request, and when it came.
type asked struct {
	*discoveryv3.DiscoveryRequest
	stream int64
	at     time.Time
}

// manage starts a server without a snapshot. tls may be nil.
func manage(t *testing.T, tls *tls.Config) *management {
	t.Helper()
	m := &management{t: t, address: "127.0.0.1:0", tls: tls}
	m.start()
	t.Cleanup(m.stop)
	return m
}

// start listens, on the same port as before, with an empty cache.
func (m *management) start() {
	m.t.Helper()
	l, err := net.Listen("tcp", m.address)
	if err != nil {
		m.t.Fatal(err)
	}
	m.address = l.Addr().String()
	m.cache = cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := server.NewServer(ctx, m.cache, server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			md, _ := metadata.FromIncomingContext(ctx)
			m.headers = append(m.headers, md)
			return nil
		},
		StreamRequestFunc: func(stream int64, r *discoveryv3.DiscoveryRequest) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests = append(m.requests, asked{DiscoveryRequest: r, stream: stream, at: time.Now()})
			return nil
		},
	})
	var options []grpc.ServerOption
	if m.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(m.tls)))
	}
	g := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	m.mu.Lock()
	m.grpc = g
	m.mu.Unlock()
	go func() {
		defer cancel()
		_ = g.Serve(l)
	}()
}

func (m *management) stop() {
	m.mu.Lock()
	g := m.grpc
	m.mu.Unlock()
	g.Stop()
}

// set makes these domains the snapshot of a version.
func (m *management) set(version string, domains ...*xdsv3.RateLimitConfig) {
	m.t.Helper()
	list := make([]types.Resource, len(domains))
	for i, d := range domains {
		list[i] = d
	}
	m.setResources(version, list...)
}

func (m *management) setResources(version string, list ...types.Resource) {
	m.t.Helper()
	s, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.cache.SetSnapshot(context.Background(), nodeID, s); err != nil {
		m.t.Fatal(err)
	}
}

// asked returns all requests so far.
func (m *management) asked() []asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]asked(nil), m.requests...)
}

// answers returns what the requests behind the first of each stream say.
func (m *management) answers() []string {
	var list []string
	for _, r := range m.asked() {
		switch {
		case r.GetResponseNonce() == "":
		case r.GetErrorDetail() != nil:
			list = append(list, fmt.Sprintf("NACK at %q", r.GetVersionInfo()))
		default:
			list = append(list, fmt.Sprintf("ACK %q", r.GetVersionInfo()))
		}
	}
	return list
}

// lastDetail returns the error of the last refusal.
func (m *management) lastDetail() string {
	detail := ""
	for _, r := range m.asked() {
		if r.GetErrorDetail() != nil {
			detail = r.GetErrorDetail().GetMessage()
		}
	}
	return detail
}

// domain is a domain with one limit of so many requests an hour on each user.
func domain(name string, requests uint32) *xdsv3.RateLimitConfig {
	return domainOf(name, &xdsv3.RateLimitDescriptor{Key: "user", RateLimit: perUnit(requests, xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_HOUR)})
}

func domainOf(name string, descriptors ...*xdsv3.RateLimitDescriptor) *xdsv3.RateLimitConfig {
	return &xdsv3.RateLimitConfig{Name: name, Domain: name, Descriptors: descriptors}
}

func perUnit(requests uint32, unit xdsv3.RateLimitUnit) *xdsv3.RateLimitPolicy {
	return &xdsv3.RateLimitPolicy{RequestsPerUnit: requests, Unit: unit}
}
