package server

import (
	"fmt"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// httpDoor serves RPCs as protobuf JSON, and readiness.
func (s *Server) httpDoor() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /json", s.viaHTTP.postJSON)
	for route, handler := range s.apiHTTP.routes() {
		mux.HandleFunc(route, handler)
	}
	mux.HandleFunc("GET /openapi.yaml", getOpenAPI)
	if s.viaAuth != nil {
		mux.Handle("/auth/{name}", s.viaAuth)
	}
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.isServing() {
			http.Error(w, "NOT_SERVING: "+s.ready.reason(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	return s.panics.Recovering(endpoint.Refusing(mux))
}
