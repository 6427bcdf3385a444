//go:build !linux

package server

import (
	"net"
	"syscall"
)

func rawReads(net.Conn) syscall.RawConn { return nil }

func (c *plainConnection) tryRead(uintptr) bool { return true }
