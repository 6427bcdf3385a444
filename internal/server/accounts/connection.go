package accounts

import (
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ConnectionCost is what a gRPC connection holds without a call, in bytes: buffers,
// goroutines, tables of headers.
const ConnectionCost = 48 << 10

// socketBuffer bounds the bytes that the kernel keeps of a connection each way.
// Without it that is megabytes, which count as the container's memory and are
// read even after the caller has gone.
const socketBuffer = 128 << 10

// LimitSocket sets the buffers of a socket to 128 KiB.
func LimitSocket(conn net.Conn) {
	if c, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_ = c.SetReadBuffer(socketBuffer) // the system's will do
		_ = c.SetWriteBuffer(socketBuffer)
	}
}

// Connection is a gRPC connection that charges what it reads.
type Connection struct {
	net.Conn
	Account *Account
	frames  frameReader
	once    sync.Once
}

func (c *Connection) Read(b []byte) (int, error) {
	c.Account.holdUp()
	n, err := c.Conn.Read(b[:c.Account.readSize(len(b))])
	c.read(b[:n])
	return n, err
}

func (c *Connection) read(b []byte) {
	if change, calls, unread := c.frames.read(b); change != 0 || calls != 0 || unread != 0 {
		c.Account.open(change, calls, unread)
	}
}

func (c *Connection) Close() error {
	c.once.Do(c.Account.Close)
	return c.Conn.Close()
}

// PlainConnection is a Connection without TLS. gRPC lets it choose its buffer when
// there is something to read, so that an idle one has none.
type PlainConnection struct {
	Connection
	raw syscall.RawConn

	// These belong to the current read, so that it allocates nothing.
	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
	try    func(fd uintptr) bool
}

// NewPlainConnection returns nil if the system or the kind of connection has no
// such reads.
func NewPlainConnection(conn net.Conn, a *Account) *PlainConnection {
	raw := rawReads(conn)
	if raw == nil {
		return nil
	}
	c := &PlainConnection{Connection: Connection{Conn: conn, Account: a}, raw: raw}
	c.try = c.tryRead
	return c
}

// ReadOnReady is what gRPC calls instead of Read.
func (c *PlainConnection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.Account.holdUp()
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
