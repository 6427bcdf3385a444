package adminapi

import (
	"bytes"
	"context"
	_ "embed" // the document
	"encoding/json"
	"mime"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// prefix begins the paths of the API.
const prefix = "/admin/v1"

// openAPI describes Routes.
//
//go:embed openapi.yaml
var openAPI []byte

// Routes returns the handlers by method and path.
func (a *API) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET " + prefix + "/domains":           route(a, "ListDomains", readNothing[adminv1.ListDomainsRequest], a.ListDomains),
		"GET " + prefix + "/rules":             route(a, "GetRule", readGetRule, a.GetRule),
		"POST " + prefix + "/explain":          route(a, "Explain", readBody[adminv1.ExplainRequest], a.Explain),
		"POST " + prefix + "/inspect":          route(a, "Inspect", readBody[adminv1.InspectRequest], a.Inspect),
		"POST " + prefix + "/reset":            route(a, "Reset", readBody[adminv1.ResetRequest], a.Reset),
		"GET " + prefix + "/assignments":       route(a, "ListAssignments", readListAssignments, a.ListAssignments),
		"POST " + prefix + "/assignments":      route(a, "PutAssignments", readBody[adminv1.PutAssignmentsRequest], a.PutAssignments),
		"GET " + prefix + "/assignments/watch": a.getWatch,
		"GET " + prefix + "/assignment":        a.getAssignment,
		"PUT " + prefix + "/assignment":        a.putAssignment,
		"DELETE " + prefix + "/assignment":     a.deleteAssignment,
		"GET " + prefix + "/daemons":           route(a, "ListDaemons", readNothing[adminv1.ListDaemonsRequest], a.ListDaemons),
		"GET " + prefix + "/audit":             route(a, "ListAudit", readListAudit, a.ListAudit),
		"GET " + prefix + "/top":               route(a, "Top", readTop, a.Top),
	}
}

func (a *API) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handler := range a.Routes() {
		mux.HandleFunc(pattern, handler)
	}
	mux.HandleFunc("GET "+prefix+"/openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI)
	})
	all := endpoint.Refusing(mux, prefix+"/openapi.yaml")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" || r.URL.Path == prefix+"/openapi.yaml" {
			// Nobody is told of paths who could not ask one.
			if err := visitOf(r.Context()).refused; err != nil {
				a.Requests.WithLabelValues(other, status.Code(err).String()).Inc()
				writeStatus(w, err)
				return
			}
		}
		all.ServeHTTP(w, r)
	})
}

// route returns the handler of a method: read makes the request of what was sent.
func route[Q, A any](a *API, method string, read func(http.ResponseWriter, *http.Request) (*Q, error), answer func(context.Context, *Q) (*A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		response, err := answered(a, method, w, r, read, answer)
		if err != nil {
			writeStatus(w, err)
			return
		}
		writeMessage(w, http.StatusOK, any(response).(proto.Message))
	}
}

// answered reads a request and has it answered, if its caller may ask.
func answered[Q, A any](a *API, method string, w http.ResponseWriter, r *http.Request, read func(http.ResponseWriter, *http.Request) (*Q, error), answer func(context.Context, *Q) (*A, error)) (response *A, err error) {
	err = a.do(r.Context(), method, func() error {
		return a.bounded(r.Context(), 0, func(ctx context.Context) error {
			request, err := read(w, r)
			if err != nil {
				return err
			}
			response, err = answer(ctx, request)
			return err
		})
	})
	return response, err
}

// bodyBounds bound a body: 1,000 assignments of usual length have fewer values.
var bodyBounds = endpoint.JSONBounds{Bytes: 2 * messageMost, Values: 200_000, Why: "than 1,000 assignments usually have"}

// readBody reads a message in JSON. A type that forms of web pages do not send is
// required, so that a browser asks before it sends one from another site.
func readBody[Q any](w http.ResponseWriter, r *http.Request) (*Q, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, decide.Invalid("content-type: found %.100q; allowed: application/json", r.Header.Get("Content-Type"))
	}
	q := new(Q)
	return q, endpoint.ReadJSON(w, r, any(q).(proto.Message), bodyBounds)
}

// writtenJSON writes the names of the API's fields as they are there, and what is false or
// 0 too.
var writtenJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

func appendJSON(dst []byte, m proto.Message) ([]byte, error) {
	text, err := writtenJSON.Marshal(m)
	if err != nil {
		return dst, err
	}
	// protojson varies its blanks, which diffs of scripts would show.
	out := bytes.NewBuffer(slices.Grow(dst, len(text)+1))
	if err := json.Compact(out, text); err != nil {
		return dst, err
	}
	return append(out.Bytes(), '\n'), nil
}

func writeMessage(w http.ResponseWriter, code int, m proto.Message) {
	out, err := appendJSON(nil, m)
	if err != nil {
		endpoint.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// A client that no longer reads is no failure.
	_, _ = w.Write(out)
}

// writeStatus writes an error with its status over HTTP.
func writeStatus(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch status.Code(err) {
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	case codes.Unauthenticated:
		code = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", "Bearer")
	case codes.PermissionDenied:
		code = http.StatusForbidden
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.FailedPrecondition:
		code = http.StatusPreconditionFailed
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests
	case codes.Unimplemented:
		code = http.StatusNotImplemented
		if err == errNotServed {
			code = http.StatusNotFound
		}
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	endpoint.WriteError(w, code, status.Convert(err).Message())
}
