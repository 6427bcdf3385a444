package transport

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// gRPC asks an old connection to go, and cuts it after the grace. A TakeStream does not
// learn of the first and would lose answers to the second, so it ends by itself before
// that.

// agingCredentials note when a connection began.
type agingCredentials struct {
	credentials.TransportCredentials
}

// NewCredentials returns inner credentials that also note when a connection began, and have
// those of an overload.Listener counted.
func NewCredentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return agingCredentials{inner}
}

func (c agingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	began := time.Now()
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	counted, ok := raw.(*overload.Conn)
	if ok {
		conn = counted.Follow(conn)
	}
	return conn, agingInfo{AuthInfo: info, began: began, counted: counted, certificate: certificateOf(info)}, nil
}

type agingInfo struct {
	credentials.AuthInfo
	began   time.Time
	counted *overload.Conn // or nil
	// certificate is the client's, or nil.
	certificate *certificate
}

// certificate is a client's certificate that TLS has verified.
type certificate struct{ names []string }

func certificateOf(info credentials.AuthInfo) *certificate {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return nil
	}
	return &certificate{access.Names(t.State.PeerCertificates[0])}
}

// CertificateNames returns the names in the certificate of the client of a call, and
// whether it showed one.
func CertificateNames(ctx context.Context) (names []string, hasCertificate bool) {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.AuthInfo.(agingInfo); ok && a.certificate != nil {
			return a.certificate.names, true
		}
	}
	return nil, false
}

// Overload returns the counted connection, or nil.
func (i agingInfo) Overload() *overload.Conn { return i.counted }

// UntilOld returns how long a stream may last whose connection lives for age, or up
// to a tenth less, and then for the grace. It reports false if connections are
// not cut.
func UntilOld(ctx context.Context, age, grace time.Duration) (time.Duration, bool) {
	if age == 0 || grace == 0 {
		return 0, false
	}
	began := time.Now()
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.AuthInfo.(agingInfo); ok {
			began = a.began
		}
	}
	// A stream on an old connection has to end within the grace.
	return max(time.Until(began.Add(age/100*85)), grace/2), true
}

// These suit many small calls on few cores, as measured (docs/performance.md). The
// servers that the benchmark compares with the daemon use them too.
const (
	// StreamWorkers is how many goroutines wait for gRPC calls. A call that finds one
	// need not grow a new stack; further calls get new goroutines. That is more than
	// usually wait for Redis at a time.
	StreamWorkers = 256
	// StreamWindow and ConnectionWindow are how many bytes callers may send ahead
	// on one call and on a connection. Windows of a fixed size need no pings to
	// measure by, which a lone caller would have to answer as often as it asks.
	StreamWindow     = 64 << 10
	ConnectionWindow = 1 << 20
)
