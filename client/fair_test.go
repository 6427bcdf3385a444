package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
)

// far is a connection on which everything arrives late.
type far struct{ net.Conn }

func (f far) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	time.Sleep(2 * time.Millisecond)
	return n, err
}

// A process near the daemon does not take the turns of one far from it.
func TestWaitIsFairToADistantProcess(t *testing.T) {
	t.Parallel()
	address := daemontest.Start(t, `
domain: api
descriptors:
  - key: one
    rate_limit: {requests: 50, period: 1s, burst: 1}
`).Address
	var mu sync.Mutex
	var order []bool
	var all sync.WaitGroup
	begin := time.Now()
	for _, isFar := range []bool{false, true} {
		c := connect(t, address)
		if isFar {
			c = connect(t, address, client.DialOptions(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				return far{conn}, err
			})))
		}
		for range 50 {
			all.Go(func() {
				if _, err := c.Wait(within(t), one("api", "one", "x")); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, isFar)
			})
		}
	}
	all.Wait()
	n := 0
	for _, isFar := range order[:50] {
		if isFar {
			n++
		}
	}
	t.Logf("%d of the first 50 are the distant process's; all passed in %v", n, time.Since(begin))
	if n < 5 {
		t.Errorf("only %d of the first 50 are the distant process's", n)
	}
}
