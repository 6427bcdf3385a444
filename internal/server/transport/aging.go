package transport

import (
	"context"
	"net"
	"runtime"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// gRPC tells a connection that has its age to go, and cuts it after the grace.
// A stream of requests would lose answers then, for it does not learn of the
// first. So it ends by itself before the age.

// agingCredentials note when a connection began, and open its account.
type agingCredentials struct {
	credentials.TransportCredentials
	memory *accounts.Memory
}

// NewCredentials returns credentials that open the accounts of connections in
// memory, besides what inner do.
func NewCredentials(inner credentials.TransportCredentials, memory *accounts.Memory) credentials.TransportCredentials {
	return agingCredentials{inner, memory}
}

func (c agingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	began := time.Now()
	accounts.LimitSocket(raw)
	charged := c.memory.Open(accounts.ConnectionCost, func() { _ = raw.Close() })
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		charged.Close()
		return nil, nil, err
	}
	// Where a connection ends before gRPC serves it, only the raw one is closed.
	if plain := accounts.NewPlainConnection(conn, charged); plain != nil {
		runtime.AddCleanup(plain, (*accounts.Account).Close, charged)
		return plain, agingInfo{info, began, charged}, nil
	}
	other := &accounts.Connection{Conn: conn, Account: charged}
	runtime.AddCleanup(other, (*accounts.Account).Close, charged)
	return other, agingInfo{info, began, charged}, nil
}

type agingInfo struct {
	credentials.AuthInfo
	began   time.Time
	account *accounts.Account
}

// Account is that of the connection.
func (i agingInfo) Account() *accounts.Account { return i.account }

// UntilOld is how long a stream of the context may last, if what it is on lives
// for age, or up to a tenth less, and then for the grace. It reports false where
// nothing is cut.
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
	// A stream on a connection that is old already has to end within the grace.
	return max(time.Until(began.Add(age/100*85)), grace/2), true
}

// How gRPC runs, as measured with many small calls on few cores
// (docs/performance.md). A server that is compared with the daemon runs the
// same way.
const (
	// StreamWorkers is how many goroutines wait for gRPC calls: a call that
	// finds one need not grow a new stack. More calls than that get goroutines
	// of their own, so it is more than wait for Redis at a time as a rule.
	StreamWorkers = 512
	// StreamWindow and ConnectionWindow are how many bytes callers may send
	// ahead on one call and on a connection. Windows of a fixed size need no
	// ping after what is received to measure by, which a lone caller's process
	// would have to answer as often as it asks.
	StreamWindow     = 64 << 10
	ConnectionWindow = 1 << 20
)
