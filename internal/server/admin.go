package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
)

// adminHandler is for operators: the rules in force, and what the process does.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ratelimitd", s.options.Version)
		fmt.Fprintln(w, "/healthz   200 while the process lives")
		fmt.Fprintln(w, "/metrics   for Prometheus")
		fmt.Fprintln(w, "/rlconfig  the rules in force")
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
	return s.panics.Recovering(mux)
}

// metricsHandler has the metrics and nothing else.
func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	if path := s.options.Admin.MetricsPath; path != "" {
		mux.Handle("GET "+path, s.metricsPage())
	}
	return s.panics.Recovering(mux)
}

func (s *Server) metricsPage() http.Handler {
	return promhttp.HandlerFor(s.options.Metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
		// A page of many series takes memory while it is made.
		MaxRequestsInFlight: 4,
	})
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
