package transport

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// ListenSocket listens on a unix socket. It replaces an abandoned one, which a
// process leaves behind when it is killed.
func ListenSocket(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) || !abandoned(path) {
		return l, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// abandoned reports whether path is a socket at which nobody listens.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
