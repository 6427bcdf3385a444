package accounts

import (
	"io"
	"net"
	"syscall"
)

// rawReads returns what reads the connection once it can be read, or nil.
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

// tryRead reads what is there, and reports false where nothing is.
func (c *PlainConnection) tryRead(fd uintptr) bool {
	c.buffer = c.pool.Get(c.Account.readSize(c.size))
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
