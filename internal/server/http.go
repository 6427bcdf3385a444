package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// httpDoor serves the RPC as protobuf JSON, and readiness.
func (s *Server) httpDoor() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /json", s.postJSON)
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.isServing() {
			http.Error(w, "NOT_SERVING: "+s.ready.reason(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	return s.panics.recovering(mux)
}

func (s *Server) postJSON(w http.ResponseWriter, r *http.Request) {
	// JSON spells a message in more bytes than the wire does, but not in
	// more than this unless it is made to.
	bound := int64(4 * s.options.Bounds.messageBound())
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bound))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = fmt.Errorf("the body is larger than %d bytes", bound)
		}
		s.refuseBody(w, fmt.Sprintf("the body cannot be read: %v", err))
		return
	}
	var request rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(body, &request); err != nil {
		s.refuseBody(w, fmt.Sprintf("the body is no RateLimitRequest in protobuf JSON: %v", err))
		return
	}
	response, err := s.viaHTTP.ShouldRateLimit(r.Context(), &request)
	if err != nil {
		writeError(w, httpStatus(status.Code(err)), status.Convert(err).Message())
		return
	}
	out, err := protojson.Marshal(response)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	for _, h := range response.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// Whether the client still reads is its own affair.
	_, _ = w.Write(append(out, '\n'))
}

// refuseBody answers what is not even a request.
func (s *Server) refuseBody(w http.ResponseWriter, message string) {
	s.viaHTTP.requests.add(codes.InvalidArgument)
	writeError(w, http.StatusBadRequest, message)
}

func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}
