package server

import (
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/mem"
)

// connectionCost is what a connection of gRPC holds that has no calls: buffers,
// goroutines, tables of headers.
const connectionCost = 48 << 10

// socketBuffer is what the kernel keeps of a connection that is not read, each
// way. By itself it would be megabytes, which count as the container's memory,
// and which are read after the caller has gone.
const socketBuffer = 128 << 10

func limitSocket(conn net.Conn) {
	if c, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_ = c.SetReadBuffer(socketBuffer) // that of the system will do
		_ = c.SetWriteBuffer(socketBuffer)
	}
}

// connection is a connection of gRPC that charges what it reads.
type connection struct {
	net.Conn
	account *account
	frames  frameReader
	once    sync.Once
}

func (c *connection) Read(b []byte) (int, error) {
	c.account.holdUp()
	n, err := c.Conn.Read(b[:c.account.readSize(len(b))])
	c.read(b[:n])
	return n, err
}

func (c *connection) read(b []byte) {
	if change, calls, unread := c.frames.read(b); change != 0 || calls != 0 || unread != 0 {
		c.account.open(change, calls, unread)
	}
}

func (c *connection) Close() error {
	c.once.Do(c.account.close)
	return c.Conn.Close()
}

// plainConnection is one without TLS. gRPC lets it choose the buffer that it
// reads into once there is something to read, so that an idle one has none.
type plainConnection struct {
	connection
	raw syscall.RawConn

	// Of the read at hand, so that it allocates nothing.
	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
	try    func(fd uintptr) bool
}

// newPlainConnection returns nil where the system or the kind of connection has
// no such reads.
func newPlainConnection(conn net.Conn, a *account) *plainConnection {
	raw := rawReads(conn)
	if raw == nil {
		return nil
	}
	c := &plainConnection{connection: connection{Conn: conn, account: a}, raw: raw}
	c.try = c.tryRead
	return c
}

// ReadOnReady is what gRPC calls in the place of Read.
func (c *plainConnection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.account.holdUp()
	c.size, c.pool = size, pool
	err := c.raw.Read(c.try)
	buffer, n, failed := c.buffer, c.n, c.err
	c.pool, c.buffer, c.n, c.err = nil, nil, 0, nil
	if err == nil {
		err = failed
	}
	if err != nil {
		if buffer != nil {
			pool.Put(buffer)
		}
		return nil, 0, err
	}
	c.read((*buffer)[:n])
	return buffer, n, nil
}
