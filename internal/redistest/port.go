//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports lie below the range that the kernel picks clients' ports from (32768
// up on Linux), so that no connection takes the port of a server that is down
// for a while, and none that is dialed in a loop connects to itself.
const (
	minPort = 10000
	maxPort = 19999
	// busOffset is how far above its port a cluster node's bus port lies.
	busOffset = 10000
)

// imageLock is the byte of the lock file that the builder of an image locks.
const imageLock = 0

// locks keeps test processes apart: byte P of a file is locked by the process
// that uses port P. The kernel unlocks when a process ends, however it ends.
var locks struct {
	sync.Mutex
	// file stays open: closing any descriptor of it would drop the locks.
	file  *os.File
	taken map[int]bool // by this process, which its own locks do not stop
}

// lockFile returns the file of locks. locks must be held.
func lockFile() (*os.File, error) {
	if locks.file != nil {
		return locks.file, nil
	}
	b, err := base()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(b, "locks"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file of port locks: %w", err)
	}
	locks.file, locks.taken = f, map[int]bool{}
	return f, nil
}

func flock(f *os.File, cmd int, typ int16, at int) error {
	for {
		err := syscall.FcntlFlock(f.Fd(), cmd, &syscall.Flock_t{
			Type: typ, Whence: io.SeekStart, Start: int64(at), Len: 1,
		})
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// reservePort finds a port that is free, and whose bus port is free too, and
// keeps other users of this package off it until releasePort. A stranger may
// still take it: who starts a server must be ready to try another.
func reservePort() (int, error) {
	locks.Lock()
	defer locks.Unlock()
	f, err := lockFile()
	if err != nil {
		return 0, err
	}
	for range 1000 {
		port := minPort + rand.IntN(maxPort-minPort+1)
		if locks.taken[port] || flock(f, syscall.F_SETLK, syscall.F_WRLCK, port) != nil {
			continue
		}
		if bindable(port) && bindable(port+busOffset) {
			locks.taken[port] = true
			return port, nil
		}
		_ = flock(f, syscall.F_SETLK, syscall.F_UNLCK, port)
	}
	return 0, fmt.Errorf("no free port between %d and %d", minPort, maxPort)
}

func releasePort(port int) {
	locks.Lock()
	defer locks.Unlock()
	if !locks.taken[port] {
		return
	}
	delete(locks.taken, port)
	_ = flock(locks.file, syscall.F_SETLK, syscall.F_UNLCK, port)
}

func bindable(port int) bool {
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// FreePort returns a TCP port on 127.0.0.1 that nothing listens on, and that
// no other test gets from this package before t ends. It lies below the ports
// that outgoing connections get.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { releasePort(port) })
	return port
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// serialize runs f while no other test process is in serialize. Within the
// process callers must see to it themselves.
func serialize(ctx context.Context, f func() error) error {
	locks.Lock()
	file, err := lockFile()
	locks.Unlock()
	if err != nil {
		return err
	}
	err = until(ctx, "wait for another test process", func(context.Context) error {
		return flock(file, syscall.F_SETLK, syscall.F_WRLCK, imageLock)
	})
	if err != nil {
		return err
	}
	defer func() { _ = flock(file, syscall.F_SETLK, syscall.F_UNLCK, imageLock) }()
	return f()
}
