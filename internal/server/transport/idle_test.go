package transport_test

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// TestIdleConnectionsHoldNoReadBuffer opens many connections that send nothing
// after their greeting, like a large fleet of proxies at night.
func TestIdleConnectionsHoldNoReadBuffer(t *testing.T) {
	d := servertest.Start(t, servertest.BenchLimits)
	const connections = 200
	before := heaptest.InUse()
	for range connections {
		greet(t, d.Server.Address("grpc"))
	}
	each := (heaptest.InUse() - before) / connections
	const maxBytes = 24 << 10 // a read buffer has 32 KiB
	if each > maxBytes {
		t.Errorf("an idle connection holds %d bytes; allowed: %d", each, maxBytes)
	}
	runtime.KeepAlive(d)
}

// greet opens a connection of HTTP/2 and waits for both greetings.
func greet(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := f.WritePing(false, [8]byte{}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
			return
		}
	}
}
