package server

import (
	"context"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/server/envoyrls"
)

// These reach the handlers behind the ports, for tests that would be too slow
// through a port.

func (s *Server) RPC() *envoyrls.API { return s.viaGRPC }

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
	counts := newStatsdCounts(s.options.Live, s.rules.maxRules, s.envoyproxy)
	return func(ctx context.Context) { s.options.Statsd.Sender.Send(ctx, counts.all()) }
}
