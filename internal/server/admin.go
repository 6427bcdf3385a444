package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
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
		// Watches of a caller that has gone without a word end then.
		SendPingTimeout: 30 * time.Second,
		PingTimeout:     15 * time.Second,
	}
	return h
}

// newAdminAPI returns the admin API. On an address that others reach it is served
// only if it is known who calls.
func (s *Server) newAdminAPI(requests *prometheus.CounterVec) *adminapi.API {
	o := &s.options.Admin
	loopback := false
	if l := s.listeners["admin"]; l != nil {
		address, ok := l.Addr().(*net.TCPAddr)
		loopback = ok && address.IP.IsLoopback()
	}
	api := adminapi.Options{
		Live: s.options.Live, Decider: s.decider, Assignments: o.Assignments, Daemons: o.Daemons, AskTop: o.AskTop,
		Requests: requests, Panics: s.panics, Log: s.log, Now: s.options.Now, Stopping: s.watches.stopping,
	}
	if loopback || o.Members != nil || o.TLS != nil && o.TLS.ClientAuth != tls.NoClientCert {
		api.Gate = access.NewGate(o.Members, loopback, s.options.Now)
	}
	if api.Daemons == nil {
		api.Daemons = s.onlySelf
	}
	return adminapi.New(api)
}

// onlySelf returns this daemon as the only one.
func (s *Server) onlySelf(context.Context) ([]fleet.Daemon, string, error) {
	const id = "self"
	d := fleet.Daemon{ID: id, Address: s.Address("grpc"), Version: s.options.Version, Started: s.started, Seen: s.options.Now()}
	if rules := s.options.Live.Rules(); rules != nil {
		d.Rules = rules.Fingerprint()
	}
	return []fleet.Daemon{d}, id, nil
}

// Top answers another daemon's question who had the most, by what this one counted. known
// is false if this one does not keep it.
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
	mux.Handle("GET /metrics", s.metricsPage())
	mux.HandleFunc("GET /rlconfig", s.getRules)
	if s.options.HTTP.Auth != nil {
		mux.HandleFunc("GET /authconfig", s.getAuth)
	}
	if s.options.Admin.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return s.panics.Recovering(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if adminapi.Serves(r) {
			s.adminAPI.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// metricsHandler has the metrics and nothing else.
func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	if path := s.options.Admin.MetricsPath; path != "" {
		mux.Handle("GET "+path, s.metricsPage())
	}
	return s.panics.Recovering(mux)
}

func (s *Server) getRules(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	if s.options.LimitsStatus != nil {
		s.options.LimitsStatus(&out)
		writeGeneration(&out, s.options.Live.Status(), "limits")
		fmt.Fprintln(&out)
	} else {
		writeReloads(&out, s.options.Live.Status(), "limits", "rules")
	}
	if rules := s.options.Live.Rules(); rules != nil {
		if err := rules.WriteTable(&out); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	writeText(w, &out)
}

func (s *Server) getAuth(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	writeReloads(&out, s.options.HTTP.Auth.Status(), "endpoints", "endpoints")
	if err := s.options.HTTP.Auth.Value().WriteTable(&out); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeText(w, &out)
}

// writeReloads writes when files were loaded, and what is wrong with them.
func writeReloads(out *bytes.Buffer, st reload.Status, what, inForce string) {
	until := "these " + inForce + " stay in force until they are mended"
	if st.Generation == 0 {
		until = "no request is answered until they are mended"
	}
	writeGeneration(out, st, what)
	if st.LastError != nil {
		fmt.Fprintf(out, "# since %s the files have errors; %s:\n", st.FailedAt.UTC().Format(time.RFC3339), until)
		for line := range bytes.Lines([]byte(st.LastError.Error())) {
			fmt.Fprintf(out, "#   %s\n", bytes.TrimRight(line, "\n"))
		}
	}
	fmt.Fprintln(out)
}

// writeGeneration writes when what is in force was loaded.
func writeGeneration(out *bytes.Buffer, st reload.Status, what string) {
	if st.Generation == 0 {
		fmt.Fprintf(out, "# no %s were loaded yet\n", what)
		return
	}
	fmt.Fprintf(out, "# generation %d, loaded %s; %d reloads failed since the start\n",
		st.Generation, st.LoadedAt.UTC().Format(time.RFC3339), st.Failed)
}

func writeText(w http.ResponseWriter, out *bytes.Buffer) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
