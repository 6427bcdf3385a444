package authapi

import (
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// API answers proxies that ask about a request with its headers alone
// and read a status: nginx's auth_request, Caddy's forward_auth, Traefik's
// ForwardAuth.
type API struct {
	*endpoint.Endpoint
	live *forwardauth.Live
}

// New returns the API on an endpoint of its own, with what live has in force.
func New(d *endpoint.Endpoint, live *forwardauth.Live) *API {
	d.AnswerBound = func(c *decide.Call) int { return endpoint.StatusesBound(c) + endpoint.PoliciesBound(c, d.Headers) }
	return &API{Endpoint: d, live: live}
}

// ServeHTTP answers /auth/{name} with 200 or the status that the endpoint has for
// denials; with 404 if there is no such endpoint, and like POST /json if the request
// cannot be decided.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	auth := a.live.Value()
	asked := auth.Endpoint(r.PathValue("name"))
	if asked == nil {
		a.Requests.Failed(codes.InvalidArgument)
		endpoint.WriteError(w, http.StatusNotFound, "no endpoint has this name; the file of the setting auth.path says which there are")
		return
	}
	c := a.Decider.Call(a.Decider.Clock())
	defer c.Release()
	if !readAuth(c, asked, newAuthRequest(auth, asked, r)) {
		a.Requests.Answered(endpoint.ResultDenied, 1)
		endpoint.WriteError(w, asked.DeniedStatus, "the request lacks a value that its limits are counted by, or has several")
		return
	}
	switch err := a.ask(r.Context(), c, w.Header()); status.Code(err) {
	case codes.OK:
	case codes.Unauthenticated, codes.PermissionDenied:
		// Proxies pass 401 and 403 on to their client.
		endpoint.WriteError(w, http.StatusInternalServerError, status.Convert(err).Message())
		return
	default:
		endpoint.WriteStatus(w, err)
		return
	}
	if c.Denied {
		endpoint.WriteError(w, asked.DeniedStatus, "the request is over its limit")
		return
	}
	w.WriteHeader(http.StatusOK)
}

// ask answers a call, and sets the headers of the response.
func (a *API) ask(ctx context.Context, c *decide.Call, header http.Header) error {
	if len(c.Descriptors) == 0 { // on_missing: omit
		a.Requests.Answered(endpoint.ResultAllowed, 1)
		return nil
	}
	if err := a.Answer(ctx, c, nil); err != nil {
		return err
	}
	for _, h := range endpoint.AppendHeaders(c, nil, a.Headers) {
		header.Set(h.Name, string(h.AppendValue(nil)))
	}
	return nil
}

// readAuth reads the descriptors of an endpoint from a request into an empty call.
// It returns false if the request is denied because a value is missing.
func readAuth(c *decide.Call, endpoint *forwardauth.Endpoint, r *authRequest) bool {
	c.Domain = endpoint.Domain
	for i := range endpoint.Descriptors {
		if !readAuthDescriptor(c, &endpoint.Descriptors[i], r) {
			return false
		}
	}
	return true
}

// readAuthDescriptor adds a descriptor, once for each combination of values that
// it may have: a request must pass as each of them.
func readAuthDescriptor(c *decide.Call, asked *forwardauth.Descriptor, r *authRequest) bool {
	values := make([][]string, len(asked.Entries))
	combinations := 1
	for i := range asked.Entries {
		e := &asked.Entries[i]
		var ok bool
		values[i], ok = r.values(e)
		if !ok || e.OnMissing == forwardauth.MissingDeny && slices.Contains(values[i], "") {
			return false
		}
		if combinations *= len(values[i]); combinations > maxPathValues {
			return false
		}
	}
	for n := range combinations {
		start, omit := len(c.Entries), false
		for i := range asked.Entries {
			e, value := &asked.Entries[i], values[i][n%len(values[i])]
			n /= len(values[i])
			omit = omit || value == "" && e.OnMissing == forwardauth.MissingOmit
			c.Entries = append(c.Entries, bucket.Entry{Key: e.Key, Value: value})
		}
		if omit {
			c.Entries = c.Entries[:start]
			continue
		}
		c.Descriptors = append(c.Descriptors, decide.Descriptor{
			Entries: c.Entries[start:len(c.Entries):len(c.Entries)], HitsAddend: uint64(asked.Cost), HasHitsAddend: true, IsDoubtful: combinations > 1,
		})
	}
	return true
}
