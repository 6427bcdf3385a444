//go:build !linux

package accounts

import (
	"net"
	"syscall"
)

func rawReads(net.Conn) syscall.RawConn { return nil }

func (c *PlainConnection) tryRead(uintptr) bool { return true }
