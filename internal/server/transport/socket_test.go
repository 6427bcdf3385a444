package transport_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(filetest.SocketFolder(t), "grpc.sock")
}

func atSocket(path string) func(*server.Options) {
	return func(o *server.Options) { o.GRPC.Socket = path }
}

func TestServerAnswersOnASocket(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	d := servertest.Start(t, servertest.OneLimit, atSocket(path))
	if got := d.Server.Address("grpc"); got != "unix:"+path {
		t.Errorf("gRPC is at %s", got)
	}
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
	d.End()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after the end the socket is still there: %v", err)
	}
}

// TestSocketLeftBehindIsReplaced leaves every other file in place.
func TestSocketLeftBehindIsReplaced(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)

	refused := func(what, path string) {
		t.Helper()
		o := servertest.NewOptions(t, servertest.OneLimit)
		o.GRPC.Socket = path
		if _, err := server.New(o); err == nil || !strings.HasPrefix(err.Error(), "grpc.socket: ") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", what, err)
		}
	}
	refused("a socket at which somebody listens", path)
	left.Close()
	servertest.Start(t, servertest.OneLimit, atSocket(path)).Ask("api", 1, "user=x")

	file := filepath.Join(filepath.Dir(path), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a file", file)
}

// TestOldConnectionsAreReplacedWithoutFailures lets connections reach their
// age; clients then make new ones, and no call fails.
func TestOldConnectionsAreReplacedWithoutFailures(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) {
		o.GRPC.ConnectionAge, o.GRPC.ConnectionAgeGrace = 20*time.Millisecond, time.Minute
	})
	var dials atomic.Int32
	d.Dial(servertest.Plain(), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	asynctest.Eventually(t, "a second connection", func() bool {
		d.Ask("api", 1, "user=x")
		return dials.Load() > 1
	})
}
