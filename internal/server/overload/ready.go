package overload

import (
	"syscall"

	"google.golang.org/grpc/mem"
)

// readyConn lets gRPC take a buffer only once there is something to read, so that an idle
// connection has none.
type readyConn struct {
	grpcConn
	raw syscall.RawConn

	// These belong to the current read, so that it allocates nothing.
	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
	try    func(fd uintptr) bool
}

// ReadOnReady is what gRPC calls instead of Read.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.counted.slow()
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
	c.follow(&c.received, (*buffer)[:n])
	return buffer, n, nil
}
