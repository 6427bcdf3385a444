package overload

import (
	"io"
	"net"
	"syscall"
)

// rawReads returns the raw connection, whose Read waits until there is something
// to read; nil if there is none.
func rawReads(conn net.Conn) syscall.RawConn {
	var of syscall.Conn
	switch conn := conn.(type) {
	case *net.TCPConn:
		of = conn
	case *net.UnixConn:
		of = conn
	default:
		return nil
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// tryRead reads once; it reports false if there is nothing to read yet.
func (c *readyConn) tryRead(fd uintptr) bool {
	c.buffer = c.pool.Get(c.size)
	c.n, c.err = syscall.Read(int(fd), *c.buffer)
	for c.err == syscall.EINTR {
		c.n, c.err = syscall.Read(int(fd), *c.buffer)
	}
	if c.n > 0 {
		return true
	}
	c.pool.Put(c.buffer)
	c.buffer = nil
	switch c.err {
	case syscall.EAGAIN:
		c.n, c.err = 0, nil
		return false
	case nil:
		c.err = io.EOF
	}
	return true
}
