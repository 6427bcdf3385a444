package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/takeapi"
)

// httpHandler serves the APIs over HTTP, and readiness.
func (s *Server) httpHandler() http.Handler {
	mux := http.NewServeMux()
	traced := func(route string, handler http.Handler) {
		if s.options.Requests.Callers != nil {
			handler = withCredentials(handler, authorizationOf(route))
		}
		mux.Handle(route, endpoint.TracedHTTP(s.options.Tracer, route, handler))
	}
	traced("POST /json", http.HandlerFunc(s.viaHTTP.PostJSON))
	for route, handler := range s.apiHTTP.Routes() {
		traced(route, handler)
	}
	mux.HandleFunc("GET /openapi.yaml", takeapi.GetOpenAPI)
	if s.viaAuth != nil {
		traced("/auth/{name}", s.viaAuth)
	}
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.isServing() {
			http.Error(w, "NOT_SERVING: "+s.ready.reason(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	return s.panics.Recovering(endpoint.Refusing(mux, "/openapi.yaml"))
}

// proxyAuthorization is the authorization of a proxy that asks about a request whose
// own authorization is in the usual header.
const proxyAuthorization = "Ratelimitd-Authorization"

func authorizationOf(route string) string {
	if strings.HasPrefix(route, "/auth/") {
		return proxyAuthorization
	}
	return "Authorization"
}

// withCredentials returns a handler that knows the caller's credentials.
func withCredentials(next http.Handler, header string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(endpoint.WithCredentials(r.Context(), endpoint.HTTPCredentials(r, header))))
	})
}
