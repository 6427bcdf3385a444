package adminapi

import (
	"bytes"
	"context"
	_ "embed" // the document
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/proto/apijson"
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
		"GET " + prefix + "/domains":           listed(a, "ListDomains", readNothing[adminv1.ListDomainsRequest], a.listDomains, "domains"),
		"GET " + prefix + "/rules":             listed(a, "GetRule", readGetRule, a.listRules, "rules"),
		"POST " + prefix + "/explain":          route(a, "Explain", readBody[adminv1.ExplainRequest], a.Explain),
		"POST " + prefix + "/inspect":          route(a, "Inspect", readBody[adminv1.InspectRequest], a.Inspect),
		"POST " + prefix + "/reset":            route(a, "Reset", readBody[adminv1.ResetRequest], a.resetOne),
		"GET " + prefix + "/assignments":       listed(a, "ListAssignments", readListAssignments, a.listAssignments, "assignments"),
		"POST " + prefix + "/assignments":      route(a, "PutAssignments", readBody[adminv1.PutAssignmentsRequest], a.PutAssignments),
		"PATCH " + prefix + "/assignments":     route(a, "PatchAssignments", readBody[adminv1.PatchAssignmentsRequest], a.PatchAssignments),
		"GET " + prefix + "/assignments/watch": a.getWatch,
		"GET " + prefix + "/assignment":        asked(a, "GetAssignment", readGetAssignment, a.GetAssignment, writeAssignment),
		"PUT " + prefix + "/assignment":        changeOne(a, "PutAssignments", readPutAssignment, a.PutAssignments),
		"PATCH " + prefix + "/assignment":      changeOne(a, "PatchAssignments", readPatchAssignment, a.PatchAssignments),
		"DELETE " + prefix + "/assignment":     route(a, "DeleteAssignment", readDeleteAssignment, a.deleteOne),
		"POST " + prefix + "/assignment/undo":  route(a, "UndoAssignment", readBody[adminv1.UndoAssignmentRequest], a.undoOne),
		"GET " + prefix + "/daemons":           route(a, "ListDaemons", readNothing[adminv1.ListDaemonsRequest], a.ListDaemons),
		"GET " + prefix + "/audit":             listed(a, "ListAudit", readListAudit, a.listAudit, "records"),
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
			// Callers who may ask nothing are not told about paths.
			if err := visitOf(r.Context()).refused; err != nil {
				a.Requests.WithLabelValues(other, status.Code(err).String()).Inc()
				writeStatus(w, err)
				return
			}
		}
		all.ServeHTTP(w, r)
	})
}

// reader makes the request of a method from what was sent. Its error is a status.
type reader[Q any] func(http.ResponseWriter, *http.Request) (*Q, error)

// handled returns the handler of a method. write answers while the request holds its
// place; if it returns an error, it has written nothing, or the error is a brokenAnswer.
func handled[Q any](a *API, method string, read reader[Q], write func(context.Context, http.ResponseWriter, *Q) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		err := a.do(ctx, method, func() error {
			var q *Q
			if err := a.readBody(r, method, func() (err error) {
				q, err = read(w, r)
				return err
			}); err != nil {
				return err
			}
			return inPlace(ctx, w, a.placesFor(method, memberOf(ctx)), func(w http.ResponseWriter) error { return write(ctx, w, q) })
		})
		var broken *brokenAnswer
		switch {
		case errors.As(err, &broken):
			panic(http.ErrAbortHandler)
		case err != nil:
			writeStatus(w, err)
		}
	}
}

// asked is handled for a method whose answer is made whole: write writes it.
func asked[Q, A any](a *API, method string, read reader[Q], answer func(context.Context, *Q) (*A, error), write func(http.ResponseWriter, *A)) http.HandlerFunc {
	return handled(a, method, read, func(ctx context.Context, w http.ResponseWriter, q *Q) error {
		ctx, cancel := context.WithTimeout(ctx, answersWithin)
		defer cancel()
		m, err := answer(ctx, q)
		if err == nil {
			write(w, m)
		}
		return err
	})
}

// route is asked for a method whose answer is written as it is.
func route[Q, A any](a *API, method string, read reader[Q], answer func(context.Context, *Q) (*A, error)) http.HandlerFunc {
	return asked(a, method, read, answer, func(w http.ResponseWriter, m *A) { writeMessage(w, http.StatusOK, any(m).(proto.Message)) })
}

// bodyBounds bound a body: 1,000 assignments of typical length have fewer values.
var bodyBounds = endpoint.JSONBounds{Bytes: 2 * maxMessage, Values: 200_000, Why: "than 1,000 assignments usually have"}

// readBody reads a message in JSON. It requires a content type that web forms do not
// send, so that a browser asks before it sends one from another site.
func readBody[Q any](w http.ResponseWriter, r *http.Request) (*Q, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, endpoint.Invalid("content-type: found %.100q; allowed: application/json", r.Header.Get("Content-Type"))
	}
	q := new(Q)
	return q, endpoint.ReadJSON(w, r, any(q).(proto.Message), bodyBounds)
}

// writtenJSON writes the fields' names as they are in the API, and fields that are false
// or 0 too.
var writtenJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// appendCompact appends a message in JSON without blanks. protojson varies these, which
// diffs of scripts would show.
func appendCompact(dst []byte, m proto.Message) ([]byte, error) {
	text, err := apijson.Marshal(writtenJSON, m)
	if err != nil {
		return dst, err
	}
	out := bytes.NewBuffer(slices.Grow(dst, len(text)+1))
	if err := json.Compact(out, text); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

// writeHeader begins an answer in JSON.
func writeHeader(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
}

func writeMessage(w http.ResponseWriter, code int, m proto.Message) {
	out, err := appendCompact(nil, m)
	if err != nil {
		endpoint.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeHeader(w, code)
	// A client that no longer reads is not a failure.
	_, _ = w.Write(append(out, '\n'))
}

// writeStatus writes an error with its status over HTTP: that of callers' requests, with
// the exceptions listed here.
func writeStatus(w http.ResponseWriter, err error) {
	code := endpoint.HTTPStatus(status.Code(err))
	switch status.Code(err) {
	case codes.Unauthenticated:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case codes.FailedPrecondition:
		code = http.StatusPreconditionFailed // of If-Match and its kin
	case codes.ResourceExhausted:
		code = http.StatusTooManyRequests // no denial is reported here
	case codes.Unimplemented:
		if err == errNotServed {
			code = http.StatusNotFound
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	endpoint.WriteError(w, code, status.Convert(err).Message())
}
