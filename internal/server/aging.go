package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/peer"
)

// gRPC tells a connection that has its age to go, and cuts it after the grace.
// A stream of requests would lose answers then, for it does not learn of the
// first. So it ends by itself before the age.

// agingListener accepts connections whose remote address tells when they began.
type agingListener struct{ net.Listener }

func (l agingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return agingConn{c, agingAddr{c.RemoteAddr(), time.Now()}}, nil
}

type agingConn struct {
	net.Conn
	remote agingAddr
}

func (c agingConn) RemoteAddr() net.Addr { return c.remote }

type agingAddr struct {
	net.Addr
	began time.Time
}

// untilOld is how long a stream of the context may last, if what it is on lives
// for age, or up to a tenth less, and then for the grace. It reports false where
// nothing is cut.
func untilOld(ctx context.Context, age, grace time.Duration) (time.Duration, bool) {
	if age == 0 || grace == 0 {
		return 0, false
	}
	began := time.Now()
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(agingAddr); ok {
			began = a.began
		}
	}
	// A stream on a connection that is old already has to end within the grace.
	return max(time.Until(began.Add(age/100*85)), grace/2), true
}
