package adminapi

import (
	"context"
	_ "embed" // the document
	"mime"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	gateway "github.com/ratelimitd/ratelimitd/internal/server/gateway/ratelimit/admin/v1"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// prefix begins the paths of the API.
const prefix = "/admin/v1"

// onePath is the path of a single assignment.
const onePath = prefix + "/assignment"

// openAPI describes Routes.
//
//go:embed openapi.yaml
var openAPI []byte

// route is what is known about a route before the generated handler serves it.
type route struct {
	method string
	// parameters are those that the query may have.
	parameters []string
}

// routes has the routes of the generated handlers, which gateway/routes.yaml has too.
var routes = map[string]route{
	"GET " + prefix + "/domains":       {method: "ListDomains"},
	"GET " + prefix + "/rules":         {"GetRule", []string{"domain", "path", "entry"}},
	"POST " + prefix + "/explain":      {method: "Explain"},
	"POST " + prefix + "/inspect":      {method: "Inspect"},
	"POST " + prefix + "/reset":        {method: "Reset"},
	"GET " + prefix + "/assignments":   {"ListAssignments", []string{"domain", "prefix", "plan", "blocked", "page_size", "page_token"}},
	"POST " + prefix + "/assignments":  {method: "PutAssignments"},
	"PATCH " + prefix + "/assignments": {method: "PatchAssignments"},
	"GET " + onePath:                   {"GetAssignment", []string{"domain", "entry"}},
	"PUT " + onePath:                   {"PutAssignments", []string{"domain", "entry", "if_match", "dry_run", "strict"}},
	"PATCH " + onePath:                 {"PatchAssignments", []string{"domain", "entry", "if_match", "dry_run", "strict", "remove", "remove_limit"}},
	"DELETE " + onePath:                {"DeleteAssignment", []string{"domain", "entry", "if_match", "reason", "part"}},
	"POST " + onePath + "/undo":        {method: "UndoAssignment"},
	"GET " + prefix + "/daemons":       {method: "ListDaemons"},
	"GET " + prefix + "/audit":         {"ListAudit", []string{"domain", "entry", "page_size", "page_token"}},
	"GET " + prefix + "/top":           {"Top", []string{"domain", "rule", "by", "window", "rows"}},
}

// Routes returns the handlers by method and path.
func (a *API) Routes() map[string]http.HandlerFunc {
	setQueryParser()
	generated := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, answerJSON),
		runtime.WithIncomingHeaderMatcher(endpoint.NoHeaders),
		runtime.WithForwardResponseOption(writeHeader),
		runtime.WithErrorHandler(func(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, _ http.ResponseWriter, _ *http.Request, err error) {
			visitOf(ctx).failed = err
		}),
	)
	// Its error is always nil.
	_ = gateway.RegisterAdminServiceHandlerServer(context.Background(), generated, overHTTP{a})
	all := map[string]http.HandlerFunc{"GET " + prefix + "/assignments/watch": a.getWatch}
	for pattern, to := range routes {
		all[pattern] = a.guarded(to, generated)
	}
	return all
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
			// Callers who may ask nothing learn nothing about paths.
			if err := visitOf(r.Context()).refused; err != nil {
				a.Requests.WithLabelValues(other, status.Code(err).String()).Inc()
				writeStatus(w, err)
				return
			}
		}
		all.ServeHTTP(w, r)
	})
}

// guarded returns the handler of a route: it checks the caller's right, bounds the query
// and the body, and waits for a place before the generated handler, which no interceptor
// precedes, serves the request.
func (a *API) guarded(to route, generated http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		err := a.do(ctx, to.method, func() error {
			if r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "" {
				return endpoint.Invalid("if-match, if-none-match: found one; allowed: the parameter if_match")
			}
			if _, err := readQuery(r, to.parameters...); err != nil {
				return err
			}
			if err := a.readBody(r, to.method, func() error { return readJSON(w, r) }); err != nil {
				return err
			}
			return inPlace(ctx, w, a.placesFor(to.method, memberOf(ctx)), func(w http.ResponseWriter) error {
				ctx, cancel := context.WithTimeout(ctx, answersWithin)
				defer cancel()
				q := r.WithContext(ctx)
				if q.Method == http.MethodHead {
					q.Method = http.MethodGet // the server leaves out the body
				}
				generated.ServeHTTP(endpoint.IgnoringErrors{ResponseWriter: w}, q)
				return visitOf(ctx).failed
			})
		})
		if err != nil {
			writeStatus(w, err)
		}
	}
}

// bodyBounds bound a body: 1,000 assignments of typical length have fewer values.
var bodyBounds = endpoint.JSONBounds{Bytes: 2 * maxMessage, Values: 200_000, Why: "than 1,000 assignments usually have"}

// readJSON reads the body of a request that has one. It requires a content type that web
// forms do not send, so that a browser asks before it sends one from another site.
func readJSON(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete:
		r.Body = http.NoBody
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return endpoint.Invalid("content-type: found %.100q; allowed: application/json", r.Header.Get("Content-Type"))
	}
	return endpoint.ReadBody(w, r, bodyBounds)
}

// answerJSON writes the fields' names as they are in the API, and fields that are false
// or 0 too. The body of a single assignment is that of a list of one change.
var answerJSON = &endpoint.JSON{
	MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
	IsCompact:      true,
	Inner: func(v any) proto.Message {
		m := new(adminv1.Assignment)
		switch list := v.(type) {
		case *[]*adminv1.PutAssignment:
			*list = []*adminv1.PutAssignment{{Assignment: m}}
		case *[]*adminv1.AssignmentPatch:
			*list = []*adminv1.AssignmentPatch{{Assignment: m}}
		}
		return m
	},
}

// overHTTP is the API over HTTP, where a change of a single assignment that was not made
// is an error.
type overHTTP struct{ *API }

// isOne reports whether a request is for a single assignment.
func isOne(ctx context.Context) bool {
	path, _ := runtime.HTTPPathPattern(ctx)
	return path == onePath
}

func (a overHTTP) PutAssignments(ctx context.Context, r *adminv1.PutAssignmentsRequest) (*adminv1.PutAssignmentsResponse, error) {
	response, err := a.API.PutAssignments(ctx, r)
	if err == nil && isOne(ctx) {
		err = failureOf(response.GetChanges()[0])
	}
	return response, err
}

func (a overHTTP) PatchAssignments(ctx context.Context, r *adminv1.PatchAssignmentsRequest) (*adminv1.PatchAssignmentsResponse, error) {
	response, err := a.API.PatchAssignments(ctx, r)
	if err == nil && isOne(ctx) {
		err = failureOf(response.GetChanges()[0])
	}
	return response, err
}

func (a overHTTP) DeleteAssignment(ctx context.Context, r *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	response, err := a.API.DeleteAssignment(ctx, r)
	if err == nil {
		err = failureOf(response.GetChange())
	}
	return response, err
}

func (a overHTTP) UndoAssignment(ctx context.Context, r *adminv1.UndoAssignmentRequest) (*adminv1.UndoAssignmentResponse, error) {
	response, err := a.API.UndoAssignment(ctx, r)
	if err == nil {
		err = failureOf(response.GetChange())
	}
	return response, err
}

// Reset is that of the API, except that what strict refuses has one status in all calls.
func (a overHTTP) Reset(ctx context.Context, r *adminv1.ResetRequest) (*adminv1.ResetResponse, error) {
	response, err := a.API.Reset(ctx, r)
	if s := status.Convert(err); s.Code() == codes.FailedPrecondition {
		err = status.Error(codes.InvalidArgument, s.Message())
	}
	return response, err
}

// failureOf returns the error of a change that was not made, or nil.
func failureOf(c *adminv1.AssignmentChange) error {
	switch c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT:
		return status.Error(codes.FailedPrecondition, c.GetError())
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED:
		text := c.GetError()
		if len(c.GetWarnings()) > 1 { // the first is the error
			text = withHints(text, c.GetWarnings()[1:])
		}
		return status.Error(codes.InvalidArgument, text)
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN, adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
		return status.Error(codes.Unavailable, c.GetError())
	}
	return nil
}

// writeHeader writes the header of an answer: 201 if a single assignment was made.
func writeHeader(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	w.Header().Set("Cache-Control", "no-store")
	changed, ok := m.(interface {
		GetChanges() []*adminv1.AssignmentChange
	})
	if ok && isOne(ctx) && changed.GetChanges()[0].GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED {
		w.WriteHeader(http.StatusCreated)
	}
	return nil
}

// writeStatus writes an error with its status over HTTP: that of callers' requests, with
// the exceptions listed here.
func writeStatus(w http.ResponseWriter, err error) {
	code := endpoint.HTTPStatus(status.Code(err))
	switch status.Code(err) {
	case codes.Unauthenticated:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case codes.FailedPrecondition:
		code = http.StatusPreconditionFailed // of if_match and its kin
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
