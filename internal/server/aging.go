package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// gRPC tells a connection that has its age to go, and cuts it after the grace.
// A stream of requests would lose answers then, for it does not learn of the
// first. So it ends by itself before the age.

// agingCredentials note when a connection began. They leave the connection as it
// is, which gRPC treats better than one of another type: it holds no read buffer
// while it is idle, and is given up when what was sent stays unacknowledged.
type agingCredentials struct {
	credentials.TransportCredentials
}

func (c agingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	began := time.Now()
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conn, agingInfo{info, began}, nil
}

type agingInfo struct {
	credentials.AuthInfo
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
		if a, ok := p.AuthInfo.(agingInfo); ok {
			began = a.began
		}
	}
	// A stream on a connection that is old already has to end within the grace.
	return max(time.Until(began.Add(age/100*85)), grace/2), true
}
