package endpoint

import (
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/transport"
)

// If a callers file says who may ask, a request is refused if the file does not name
// its caller, or if its caller may not do what the request asks.

type credentialsKey struct{}

// WithCredentials returns a context in which a caller showed these credentials.
func WithCredentials(ctx context.Context, shown *access.Credentials) context.Context {
	return context.WithValue(ctx, credentialsKey{}, shown)
}

// HTTPCredentials returns the credentials that a request over HTTP shows; header names
// the header with the authorization.
func HTTPCredentials(r *http.Request, header string) *access.Credentials {
	shown := new(access.Credentials)
	shown.ReadAuthorization(r.Header.Values(header))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 { // TLS has verified them
		shown.HasCertificate, shown.Names = true, access.Names(r.TLS.PeerCertificates[0])
	}
	return shown
}

// GRPCCredentials returns the credentials that a gRPC call shows.
func GRPCCredentials(ctx context.Context) *access.Credentials {
	shown := new(access.Credentials)
	shown.ReadAuthorization(metadata.ValueFromIncomingContext(ctx, "authorization"))
	shown.Names, shown.HasCertificate = transport.CertificateNames(ctx)
	return shown
}

var errUnknownCaller = status.Error(codes.Unauthenticated, "who asks is not known: show a certificate, or a token as authorization: Bearer TOKEN, that the callers file has (setting api.callers_file)")

// authorize returns the caller of a call, or why it has no right to make the call, or to give
// it back. Whether it may refund is known once its call is matched: releases are no refunds.
func (e *Endpoint) authorize(ctx context.Context, c *decide.Call, back *GiveBack) (*access.Caller, error) {
	shown, ok := ctx.Value(credentialsKey{}).(*access.Credentials)
	if !ok {
		shown = GRPCCredentials(ctx)
	}
	caller := e.Callers.Value().Of(shown)
	if caller == nil {
		return nil, errUnknownCaller
	}
	if !caller.MayAsk(c.Domain) {
		return nil, status.Errorf(codes.PermissionDenied, "%q may not ask about limits of this domain (setting api.callers_file)", caller.Name)
	}
	c.Owner = caller.Name // of its ID and holders: a caller settles and releases only what it took
	right := access.Take
	if back != nil {
		right = access.GiveBack
	}
	bringsNumbers := func(d decide.Descriptor) bool { return d.Own.Set }
	if !c.Releases && slices.ContainsFunc(c.Descriptors, bringsNumbers) {
		right |= access.Numbers
	}
	for _, r := range [...]access.Right{access.Take, access.GiveBack, access.Numbers} {
		if right&r != 0 && !caller.May(r) {
			return nil, status.Errorf(codes.PermissionDenied, "%q does not have the right %s (setting api.callers_file)", caller.Name, r)
		}
	}
	return caller, nil
}
