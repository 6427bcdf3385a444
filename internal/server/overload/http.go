package overload

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

const (
	// httpCost is what an HTTP connection holds without a request, in bytes.
	httpCost = 24 << 10
	// A byte of a request becomes this many in memory. Headers are kept in maps.
	headerByteCost, bodyByteCost = 24, 2
	// MaxHeaderBytes bounds the headers of a request over HTTP, which may hold those of
	// another request that a proxy asks about.
	MaxHeaderBytes = 16 << 10
)

// HTTPListener counts the connections of an HTTP server.
type HTTPListener struct {
	net.Listener
	Guard *Guard
}

// Accept implements net.Listener.
func (l HTTPListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &httpConn{Conn: l.Guard.open(conn, httpCost)}, nil
}

// httpConn counts what it reads until the requests that have begun are answered. Over
// HTTP/2 it is not known which of several the bytes belong to: each gives back the mean.
type httpConn struct {
	*Conn
	// Conn.mu guards these: bytes read since a request was answered, what is held for those,
	// what handlers reserved, and how many requests are being answered.
	read, unfinished, reserved, answering int64
	isHTTP2                               bool
}

// Read implements net.Conn.
func (c *httpConn) Read(b []byte) (int, error) {
	c.slow()
	n, err := c.Conn.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		headers := int64(0)
		if c.answering == 0 || c.isHTTP2 {
			headers = max(0, min(int64(n), 2*MaxHeaderBytes-c.read))
		}
		c.read += int64(n)
		bytes := headers*headerByteCost + (int64(n)-headers)*bodyByteCost
		c.unfinished += bytes
		c.addSent(bytes)
		c.mu.Unlock()
		c.guard.relieve()
	}
	return n, err
}

// CloseWrite lets net/http end its side first, so that a caller who is still sending can
// read why it is refused.
func (c *httpConn) CloseWrite() error {
	if conn, ok := c.Conn.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

func (c *httpConn) begin(isHTTP2 bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isHTTP2 = isHTTP2
	c.answering++
	c.addSent(callCost)
}

func (c *httpConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent, reserved := c.unfinished/c.answering, c.reserved/c.answering
	c.answering--
	c.read = 0
	c.unfinished -= sent
	c.reserved -= reserved
	c.addSent(-sent - callCost)
	c.Add(-reserved)
	c.finished.Add(1)
}

type connKey struct{}

// WithConn puts the connection into the context of its requests.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// HTTP returns a handler that gives back what each request holds when it is answered.
func HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*httpConn); ok {
			c.begin(r.ProtoMajor > 1)
			defer c.end()
		}
		next.ServeHTTP(w, r)
	})
}

// Reserve reserves bytes until the HTTP request of ctx is answered, as Conn.Reserve does.
func Reserve(ctx context.Context, bytes int64) error {
	c, ok := ctx.Value(connKey{}).(*httpConn)
	if !ok {
		return nil
	}
	err := c.Conn.Reserve(bytes)
	if err == nil {
		c.mu.Lock()
		c.reserved += bytes
		c.mu.Unlock()
	}
	return err
}
