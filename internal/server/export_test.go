package server

import (
	"context"
	"maps"
	"net/http"
	"slices"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// These reach the handlers behind the ports, for tests that would be too slow
// through a port.

func (s *Server) RPC() rlsv3.RateLimitServiceServer { return s.viaGRPC }

// Answer answers the bytes of a request as gRPC does.
func (s *Server) Answer(ctx context.Context, request []byte) ([]byte, error) {
	d, c := endpoint.NewCodec(), s.viaGRPC.Request()
	if err := d.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, c); err != nil {
		return nil, err
	}
	if err := s.viaGRPC.Answer(ctx, c.Call, nil); err != nil {
		return nil, err
	}
	out, err := d.Marshal(c)
	if err != nil {
		return nil, err
	}
	return out[0].ReadOnlyData(), nil
}

func (s *Server) HTTP() http.Handler { return s.httpHandler() }

// APIRoutes are the methods and paths of the daemon's own API.
func (s *Server) APIRoutes() []string { return slices.Sorted(maps.Keys(s.apiHTTP.Routes())) }

// AdminRoutes are the methods and paths of the admin API.
func (s *Server) AdminRoutes() []string { return slices.Sorted(maps.Keys(s.adminAPI.Routes())) }

// Admin is asked as this machine.
func (s *Server) Admin() http.Handler {
	h := s.adminHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "localhost"
		h.ServeHTTP(w, r)
	})
}

// BreakPorts makes all ports fail.
func (s *Server) BreakPorts() { s.closeListeners() }

// SendsCounts returns what sends counts to the statsd server once.
func (s *Server) SendsCounts() func(context.Context) {
	counts := newStatsdCounts(s.options.Live, s.envoyproxy)
	return func(ctx context.Context) { s.options.Statsd.Sender.Send(ctx, counts.all()) }
}
