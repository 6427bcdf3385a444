package accounts

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// httpConnectionCost is what an HTTP connection holds without a request.
	httpConnectionCost = 24 << 10
	// A byte of a request becomes this many in memory. The first bytes may be headers,
	// which are kept in maps.
	headerByteCost, otherByteCost = 24, 2
	// MaxHeaderBytes bounds the headers of a request over HTTP, which may hold those
	// of another request that a proxy asks about.
	MaxHeaderBytes = 16 << 10
	// maxUnreadBodies bounds the bytes of bodies that HTTP/2 takes from a connection
	// before handlers read them.
	maxUnreadBodies = 1 << 20
)

// Listener opens an account for each HTTP connection.
type Listener struct {
	net.Listener
	Memory *Memory
}

func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	LimitSocket(conn)
	account := l.Memory.Open(httpConnectionCost, func() { _ = conn.Close() })
	return &httpConnection{Conn: conn, account: account}, nil
}

// httpConnection charges what it reads until the current request has ended. With several
// requests at a time, over HTTP/2, it is not known which of them the bytes belong to, so
// each gives back the mean, but nothing of what bodies of the others may hold.
type httpConnection struct {
	net.Conn
	account *Account
	once    sync.Once
	// read counts the bytes since the last request ended, charged the bytes that
	// they are charged with.
	read, charged atomic.Int64
	// answering counts the requests that have begun but not ended, and bodies is what
	// their bodies may hold.
	answering, bodies atomic.Int64
}

// httpRequest has what is charged to one request of several, besides what is read.
type httpRequest struct {
	charged atomic.Int64
	body    int64 // is what its body may hold
}

func (c *httpConnection) Read(b []byte) (int, error) {
	c.account.holdUp()
	n, err := c.Conn.Read(b)
	if n > 0 {
		read := c.read.Add(int64(n))
		headers := max(0, min(int64(n), 2*MaxHeaderBytes-(read-int64(n))))
		c.charge(headers*headerByteCost + (int64(n)-headers)*otherByteCost)
	}
	return n, err
}

func (c *httpConnection) Close() error {
	c.once.Do(c.account.Close)
	return c.Conn.Close()
}

// CloseWrite lets net/http end its side first, so that a caller who is still
// sending can read why it is refused.
func (c *httpConnection) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

func (c *httpConnection) charge(bytes int64) {
	if c == nil {
		return
	}
	c.charged.Add(bytes)
	c.account.Add(bytes)
}

// Reserve charges bytes to the request of ctx once there is room; up to callCost it
// does not wait.
func (c *httpConnection) Reserve(ctx context.Context, bytes int64) error {
	if c == nil {
		return nil
	}
	if bytes <= callCost {
		c.account.Add(bytes)
	} else if err := c.account.reserve(ctx, bytes); err != nil {
		return err
	}
	if r, ok := ctx.Value(requestKey{}).(*httpRequest); ok {
		r.charged.Add(bytes)
	} else {
		c.charged.Add(bytes)
	}
	return nil
}

// begin notes that the answer to a request begins.
func (c *httpConnection) begin() {
	if c != nil {
		c.answering.Add(1)
		c.account.run()
	}
}

// ended gives back the charge of a request.
func (c *httpConnection) ended(r *httpRequest) {
	if c == nil {
		return
	}
	c.read.Store(0)
	others, bodies := c.answering.Add(-1), c.bodies.Add(-r.body)
	read := c.charged.Swap(0)
	if others > 0 {
		kept := max(read-read/(1+others), min(read, bodies, otherByteCost*maxUnreadBodies))
		c.charged.Add(kept)
		read -= kept
	}
	c.account.finish(read+r.charged.Load(), 1)
}

type (
	connectionKey struct{}
	requestKey    struct{}
)

// WithConnection puts the connection into the context of its requests.
func WithConnection(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// ConnectionOf returns the connection of a request, or nil.
func ConnectionOf(ctx context.Context) *httpConnection {
	c, _ := ctx.Value(connectionKey{}).(*httpConnection)
	return c
}

// ChargeHTTP returns a handler that gives back the charge of each request when it
// has ended.
func ChargeHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := ConnectionOf(r.Context())
		request := new(httpRequest)
		if c != nil && r.ProtoMajor > 1 { // otherwise it is the only one of its connection
			r = r.WithContext(context.WithValue(r.Context(), requestKey{}, request))
			request.charged.Store(callCost)
			request.body = otherByteCost * bodySize(r)
			c.bodies.Add(request.body)
			c.account.Add(callCost)
		}
		c.begin()
		defer c.ended(request)
		next.ServeHTTP(w, r)
	})
}

// bodySize returns how many bytes of the body of a request may come before it is read.
func bodySize(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return maxUnreadBodies
	}
	return min(r.ContentLength, maxUnreadBodies)
}
