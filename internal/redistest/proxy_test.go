//go:build unix

package redistest

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// through returns a client of the proxy that waits for a reply as long as ctx.
func through(t *testing.T, p *Proxy) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	waitUntil(t, what, func(context.Context) error {
		if !is() {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	p := StartProxy(t, Start(t).Addr())
	c := through(t, p)
	if err := c.Set(t.Context(), "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Delay(50 * time.Millisecond)
	start := time.Now()
	if got, err := c.Get(t.Context(), "a").Result(); got != "1" || err != nil {
		t.Errorf("with a delay: %q, %v", got, err)
	}
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("a reply that is delayed by 50 ms took %s", took)
	}
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	c.Close()
	wait(t, "the client is gone", func() bool { return p.Connections() == 0 })
}

// The server runs requests whose replies are held at once, and dropped ones after Heal.
func TestProxyKeepsBack(t *testing.T) {
	t.Parallel()
	s := Start(t)
	direct := s.p.client()
	defer direct.Close()
	p := StartProxy(t, s.Addr())
	c := through(t, p)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.Hold("incr")
	reply := make(chan error, 1)
	go func() { reply <- c.Incr(t.Context(), "n").Err() }()
	wait(t, "the reply is held", func() bool { return p.Held() == 1 })
	if n, err := direct.Get(t.Context(), "n").Int(); n != 1 || err != nil {
		t.Errorf("with the reply held the server counts %d, %v", n, err)
	}
	if err := c.Get(t.Context(), "n").Err(); err != nil {
		t.Errorf("another command: %v", err)
	}
	p.Heal(t)
	if err := <-reply; err != nil || p.Held() != 0 {
		t.Errorf("after Heal: %v, and %d held", err, p.Held())
	}

	p.Drop()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // which suffices to send it
	defer cancel()
	if err := c.Incr(ctx, "n").Err(); err == nil {
		t.Error("a request that is lost was replied to")
	}
	if n, err := direct.Get(t.Context(), "n").Int(); n != 1 || err != nil {
		t.Errorf("after a request that is lost the server counts %d, %v", n, err)
	}
	p.Heal(t)
	wait(t, "the kernel has sent it again", func() bool {
		n, _ := direct.Get(t.Context(), "n").Int()
		return n == 2
	})
}

func TestProxyCutsAndRefuses(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := StartProxy(t, s.Addr())
	c := through(t, p)
	done := p.CutAfter("incr")
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("the connection was not cut")
	}
	<-done
	if n, err := c.Incr(t.Context(), "n").Result(); n != 2 || err != nil {
		t.Errorf("the next one counts %d, %v; want 2: the one before was forwarded", n, err)
	}
	done = p.ResetAfter("incr")
	if err := c.Incr(t.Context(), "n").Err(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that is reset fails with %v", err)
	}
	<-done
	p.Refuse()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a connection was not refused")
	}
	p.Heal(t)
	wait(t, "connections are accepted again", func() bool { return c.Ping(t.Context()).Err() == nil })
}

// Both directions are forwarded, and the end of the test ends what is left open.
func TestForwardJoinsConnections(t *testing.T) {
	t.Parallel()
	server := Start(t)
	var left *redis.Client
	t.Run("while the test runs", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		Forward(t, listener, server.Addr())
		left = redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, Protocol: 2})
		if err := left.Set(t.Context(), "a", "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := left.Get(t.Context(), "a").Result(); got != "1" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	defer left.Close()
	if err := left.Ping(t.Context()).Err(); err == nil {
		t.Error("a connection outlives its test")
	}
}
