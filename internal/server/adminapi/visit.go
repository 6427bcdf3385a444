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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
)

// visit is what is known of a request before its method is.
type visit struct {
	member *access.Member
	// refused says why the request is not served, or is nil.
	refused error
	from    string
	// response is that of the request. It sets deadlines.
	response *http.ResponseController
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
	v := &visit{from: r.RemoteAddr, response: http.NewResponseController(w)}
	v.member, v.refused = a.identify(r)
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if !isGRPC(r) {
		a.mux.ServeHTTP(w, r)
		return
	}
	// Else gRPC would read a message before it knows who sends it.
	method := methodOf(r.URL.Path)
	if !allows(v, method) {
		refuseGRPC(w, a.do(r.Context(), method, func() error { return nil }))
		return
	}
	if err := boundBody(r, method); err != nil {
		refuseGRPC(w, a.do(r.Context(), method, func() error { return err }))
		return
	}
	a.grpc.ServeHTTP(w, r)
}

// refuseGRPC answers a call of gRPC whose message was not read.
func refuseGRPC(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(status.Code(err))))
	w.Header().Set("Grpc-Message", url.PathEscape(status.Convert(err).Message()))
}

// errNotServed says how to have the API served.
var errNotServed = status.Error(codes.Unimplemented, "the admin API is not served here: admin.address is not loopback, so who calls must be known; "+
	"set admin.tokens_file, or admin.tls.client_ca with admin.tls.cert and admin.tls.key, or admin.address to 127.0.0.1:6070")

// identify returns who calls, or a status.
func (a *API) identify(r *http.Request) (*access.Member, error) {
	if a.Gate == nil {
		return nil, errNotServed
	}
	if err := fromElsewhere(r); err != nil {
		return nil, err
	}
	var shown access.Credentials
	shown.ReadAuthorization(r.Header.Values("Authorization"))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 { // which TLS has verified
		shown.HasCertificate, shown.Names = true, access.Names(r.TLS.PeerCertificates[0])
	}
	if !shown.HasToken && !shown.HasCertificate {
		if err := fromThisMachine(r); err != nil {
			return nil, err
		}
	}
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, "the caller has no address")
	}
	member, err := a.Gate.Identify(address.Addr(), &shown)
	switch {
	case errors.Is(err, access.ErrTooMany):
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return member, nil
}

// fromElsewhere refuses requests that a page of another site had a browser make. The
// browser may have a certificate for this port, or be on this machine, so that what
// it asks would be done.
func fromElsewhere(r *http.Request) error {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return status.Error(codes.PermissionDenied, "a page of another site made this request (sec-fetch-site)")
		}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Scheme != scheme || !strings.EqualFold(u.Host, r.Host) {
			return status.Error(codes.PermissionDenied, "a page of another site made this request (origin)")
		}
	}
	return nil
}

// fromThisMachine refuses requests without credentials that only seem to come from
// this machine: a name that its owner lets lead here (DNS rebinding) stands in the
// address bar of a browser, and a proxy on this machine asks for others.
func fromThisMachine(r *http.Request) error {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	address, err := netip.ParseAddr(host)
	if isLoopback := err == nil && address.Unmap().IsLoopback(); !isLoopback && !strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return status.Error(codes.Unauthenticated, "without credentials the host of a request must be localhost or a loopback address, so that no web page can ask")
	}
	if name := proxyHeader(r.Header); name != "" {
		return status.Errorf(codes.Unauthenticated, "the request came through a proxy (header %.60s), so it may be anybody's: set admin.tokens_file, and send a token", strings.ToLower(name))
	}
	return nil
}
