package adminapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// visit is what is known about a request before its method is known.
type visit struct {
	member *access.Member
	// refused says why the request is not served, or is nil.
	refused error
	from    string
	// failed is the error of the generated handler, a status.
	failed error
	// deadlines are those of the request.
	deadlines *deadlines
	// again returns who the caller is now, since its credentials may no longer be valid.
	// Its error is a status.
	again func() (*access.Member, error)
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// memberOf returns who calls.
func memberOf(ctx context.Context) *access.Member { return visitOf(ctx).member }

// Serves reports whether a request is for the API.
func Serves(r *http.Request) bool {
	return isGRPC(r) || r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/")
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// ServeHTTP serves a request over gRPC or in JSON.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{from: r.RemoteAddr, deadlines: &deadlines{response: http.NewResponseController(w)}}
	shown := credentialsOf(r)
	if v.refused = a.CheckCertificate(r); v.refused != nil {
		w.Header().Set("Connection", "close")
	} else {
		v.member, v.refused = a.identify(r, &shown)
	}
	v.again = func() (*access.Member, error) { return a.identifyAgain(r, &shown) }
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	// What is left of a body is read, and discarded, once the request is answered.
	defer func() {
		v.deadlines.read(time.Now().Add(bodyWithin))
		v.deadlines.end()
	}()
	if !isGRPC(r) {
		a.mux.ServeHTTP(w, r)
		return
	}
	a.serveGRPC(w, r)
}

// serveGRPC serves a call. By itself gRPC would read a message before it knows who sends
// it.
func (a *API) serveGRPC(w http.ResponseWriter, r *http.Request) {
	method := methodOf(r.URL.Path)
	var err error
	if allows(visitOf(r.Context()), method) {
		if err = a.answerGRPC(w, r, method); err == nil {
			return
		}
	}
	refuseGRPC(w, a.do(r.Context(), method, func() error { return err }))
}

// answerGRPC reads the message of a call and answers it. Streams last, so they have no
// place among the requests that are answered; the others hold theirs until the answer has
// left. Its error is a status, if nothing was answered.
func (a *API) answerGRPC(w http.ResponseWriter, r *http.Request, method string) error {
	ctx := r.Context()
	if method == other { // which reads messages as they come
		if err := boundReflection(r); err != nil {
			return err
		}
		a.grpc.ServeHTTP(w, r)
		return nil
	}
	if err := a.readBody(r, method, func() error { return readMessage(r) }); err != nil {
		return err
	}
	if method == "WatchAssignments" {
		a.grpc.ServeHTTP(w, r)
		return nil
	}
	return inPlace(ctx, w, a.placesFor(method, memberOf(ctx)), func(w http.ResponseWriter) error {
		a.grpc.ServeHTTP(w, r)
		return nil
	})
}

// refuseGRPC answers a gRPC call whose message was not read.
func refuseGRPC(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(status.Code(err))))
	w.Header().Set("Grpc-Message", url.PathEscape(status.Convert(err).Message()))
}

// errNotServed says how to get the API served.
var errNotServed = status.Error(codes.Unimplemented, "the admin API is not served here: admin.address is not loopback, so who calls must be known; "+
	"set admin.tokens_file, or admin.tls.client_ca with admin.tls.cert and admin.tls.key, or admin.address to 127.0.0.1:6070")

// credentialsOf returns the credentials of a request.
func credentialsOf(r *http.Request) (shown access.Credentials) {
	shown.ReadAuthorization(r.Header.Values("Authorization"))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 { // which TLS has verified
		shown.HasCertificate, shown.Names = true, access.Names(r.TLS.PeerCertificates[0])
	}
	return shown
}

// identify returns who calls, or a status.
func (a *API) identify(r *http.Request, shown *access.Credentials) (*access.Member, error) {
	if a.Gate == nil {
		return nil, errNotServed
	}
	if err := endpoint.CheckSite(r); err != nil {
		return nil, err
	}
	if !shown.HasToken && !shown.HasCertificate {
		if err := fromThisMachine(r); err != nil {
			return nil, err
		}
	}
	return a.memberAt(r, shown, a.Gate.Identify)
}

// identifyAgain returns who the caller is now, or a status. It is for requests that
// identify let in.
func (a *API) identifyAgain(r *http.Request, shown *access.Credentials) (*access.Member, error) {
	if err := a.CheckCertificate(r); err != nil {
		return nil, err
	}
	return a.memberAt(r, shown, a.Gate.IdentifyAgain)
}

// memberAt identifies a caller at the address of a request.
func (a *API) memberAt(r *http.Request, shown *access.Credentials, identify func(netip.Addr, *access.Credentials) (*access.Member, error)) (*access.Member, error) {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, "the caller has no address")
	}
	member, err := identify(address.Addr(), shown)
	switch {
	case errors.Is(err, access.ErrTooMany):
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return member, nil
}

// CheckCertificate returns why the certificate of a request's connection is no longer
// valid, as a status, or nil. The handshake may have been long ago: since then the
// certificate may have expired, or its CA may have been removed from the file.
func (a *API) CheckCertificate(r *http.Request) error {
	if a.VerifyClient == nil || r.TLS == nil {
		return nil
	}
	if err := a.VerifyClient(*r.TLS); err != nil {
		return status.Errorf(codes.Unauthenticated, "the certificate of this connection is no longer valid: %v", err)
	}
	return nil
}

// CheckPage returns why the caller may not read a page of a port on loopback that wants
// no credentials, or nil. A valid token or a certificate, which web pages do not have,
// takes the place of the host.
func (a *API) CheckPage(r *http.Request) error {
	err := CheckHost(r)
	if err == nil {
		return nil
	}
	shown := credentialsOf(r)
	if !shown.HasToken && !shown.HasCertificate {
		return err
	}
	_, err = a.memberAt(r, &shown, a.Gate.Identify)
	return err
}

// fromThisMachine refuses requests without credentials that only seem to come from
// this machine: those of web pages, and those of a proxy on this machine, which
// forwards those of others.
func fromThisMachine(r *http.Request) error {
	if err := CheckHost(r); err != nil {
		return err
	}
	if name := proxyHeader(r.Header); name != "" {
		return status.Errorf(codes.Unauthenticated, "the request came through a proxy (header %.60s), so it may come from anywhere: set admin.tokens_file, and send a token", strings.ToLower(name))
	}
	return nil
}

// CheckHost returns a status unless a request names this machine as its host. Otherwise a
// web page could read answers through a name that its owner points here (DNS rebinding).
func CheckHost(r *http.Request) error {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	address, err := netip.ParseAddr(host)
	if isLoopback := err == nil && address.Unmap().IsLoopback(); !isLoopback && !strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return status.Errorf(codes.Unauthenticated, "host: found %.100q without credentials; allowed: localhost or a loopback address, so that no web page can ask", r.Host)
	}
	return nil
}
