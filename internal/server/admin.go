package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// adminServer serves the operators' port: its pages over HTTP, and the admin API over
// gRPC too, with TLS or without.
func (s *Server) adminServer() *http.Server {
	// A profile takes as long as its request says.
	h := s.httpServer(s.adminHandler(), s.options.Admin.TLS, 5*time.Minute)
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          100,
		MaxReceiveBufferPerConnection: 1 << 20,
		MaxReceiveBufferPerStream:     256 << 10,
		// This ends watches of callers that have gone silently.
		SendPingTimeout: 30 * time.Second,
		PingTimeout:     15 * time.Second,
	}
	return h
}

// newAdminAPI returns the admin API. On an address that others reach it is served
// only if it is known who calls.
func (s *Server) newAdminAPI(requests *prometheus.CounterVec) *adminapi.API {
	o := &s.options.Admin
	api := adminapi.Options{
		Live: s.options.Live, Decider: s.decider, Assignments: o.Assignments, Relief: o.Relief, Daemons: o.Daemons, AskTop: o.AskTop,
		Requests: requests, Panics: s.panics, Log: s.log, Now: s.options.Now, Stopping: s.watches.stopping,
	}
	if o.TLS != nil {
		api.VerifyClient = o.TLS.VerifyConnection
	}
	loopback := s.isLoopback("admin")
	if loopback || o.Members != nil || o.TLS != nil && o.TLS.ClientAuth != tls.NoClientCert {
		api.Gate = access.NewGate(o.Members, loopback, s.options.Now)
	}
	if api.Daemons == nil {
		api.Daemons = s.onlySelf
	}
	return adminapi.New(api)
}

// isLoopback reports whether only this machine reaches a port.
func (s *Server) isLoopback(port string) bool {
	l := s.listeners[port]
	if l == nil {
		return false
	}
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// onlySelf returns this daemon as the only one.
func (s *Server) onlySelf(context.Context) ([]fleet.Daemon, string, time.Time, error) {
	const id = "self"
	now := s.options.Now()
	d := fleet.Daemon{ID: id, Address: s.Address("grpc"), Version: s.options.Version, Started: s.started, Seen: now}
	if rules := s.options.Live.Rules(); rules != nil {
		d.Rules = rules.Fingerprint()
	}
	return []fleet.Daemon{d}, id, now, nil
}

// Top answers another daemon's question about who had the most, by what this one counted.
// known is false if this one does not keep it.
func (s *Server) Top(q top.Question) (a top.Answer, known bool) {
	if !s.decider.Tops.Keeps(q.Kind) {
		return a, false
	}
	return s.decider.Top(q), true
}

// adminHandler is for operators: the rules in force, what the process does, and the
// admin API.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ratelimitd", s.options.Version)
		fmt.Fprintln(w, "/healthz   200 while the process lives")
		fmt.Fprintln(w, "/metrics   for Prometheus")
		fmt.Fprintln(w, "/rlconfig  the rules in force")
		fmt.Fprintln(w, "/admin/v1/openapi.yaml  the admin API")
		if s.options.HTTP.Auth != nil {
			fmt.Fprintln(w, "/authconfig  the endpoints for forward auth in force")
		}
		if s.options.Admin.Pprof {
			fmt.Fprintln(w, "/debug/pprof/")
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
	mux.Handle("GET /metrics", s.scrape)
	mux.Handle("GET /rlconfig", s.places.tables.Bound(http.HandlerFunc(s.getRules)))
	if s.options.HTTP.Auth != nil {
		mux.Handle("GET /authconfig", s.places.tables.Bound(http.HandlerFunc(s.getAuth)))
	}
	if s.options.Admin.Pprof {
		for path, page := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.Handle("/debug/pprof/"+path, s.places.profiles.Bound(page))
		}
	}
	return s.panics.Recovering(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if adminapi.Serves(r) {
			s.adminAPI.ServeHTTP(w, r)
			return
		}
		if err := s.checkPage(r); err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// checkPage returns why the caller may not read a page of the admin port, or nil.
// Everybody who reaches the port may read the health of the process.
func (s *Server) checkPage(r *http.Request) error {
	if err := s.adminAPI.CheckCertificate(r); err != nil {
		return err
	}
	if s.isLoopback("admin") && r.URL.Path != "/healthz" {
		return s.adminAPI.CheckPage(r)
	}
	return nil
}

// metricsHandler serves the metrics and nothing else.
func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	if path := s.options.Admin.MetricsPath; path != "" {
		mux.Handle("GET "+path, s.scrape)
	}
	return s.panics.Recovering(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isLoopback("metrics") {
			if err := adminapi.CheckHost(r); err != nil {
				http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
				return
			}
		}
		mux.ServeHTTP(w, r)
	}))
}
