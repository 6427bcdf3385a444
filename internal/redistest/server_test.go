//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ping asks a server for an answer, which may take so long.
func ping(t *testing.T, s *Server, patience time.Duration) error {
	t.Helper()
	if err := knock(t.Context(), s.Addr()); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: s.p.password, MaxRetries: -1, ReadTimeout: patience,
	})
	defer c.Close()
	return c.Ping(t.Context()).Err()
}

func TestServerStopsPausesAndRestarts(t *testing.T) {
	t.Parallel()
	s := Start(t)
	addr := s.Addr()
	for _, step := range []struct {
		name    string
		do      func()
		answers bool
	}{
		{"start", func() {}, true},
		{"pause", s.Pause, false},
		{"resume", s.Resume, true},
		{"stop", s.Stop, false},
		{"stop again", s.Stop, false},
		{"restart", s.Restart, true},
		{"kill", s.Kill, false},
		{"restart", s.Restart, true},
		{"restart while it runs", s.Restart, true},
		{"pause", s.Pause, false},
		{"stop while paused", s.Stop, false},
		{"restart", s.Restart, true},
		{"pause", s.Pause, false},
		{"kill while paused", s.Kill, false},
	} {
		step.do()
		patience := 300 * time.Millisecond
		if step.answers {
			patience = waitDeadline
		}
		if err := ping(t, s, patience); (err == nil) != step.answers {
			t.Errorf("after %s: ping says %v, want an answer: %v", step.name, err, step.answers)
		}
		if s.Addr() != addr {
			t.Fatalf("after %s: the address is %s, was %s", step.name, s.Addr(), addr)
		}
	}
}

func TestServerGetsItsArguments(t *testing.T) {
	t.Parallel()
	s := Start(t, "--requirepass", "secret", "--maxmemory", "8mb")
	c := s.p.client()
	defer c.Close()
	got, err := c.ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "8388608" {
		t.Errorf("maxmemory is %v, %v", got, err)
	}
}

// TestServerThatEndsIsAnError: another port would not help a server that cannot
// start, so its error is not errBind.
func TestServerThatEndsIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := lookRedis(); err != nil {
		missing(t, err)
	}
	_, err := startProcess(t.Context(), "--nonsense", "1")
	if err == nil || errors.Is(err, errBind) {
		t.Errorf("error %v", err)
	}
}

func TestServerEndsWithTest(t *testing.T) {
	t.Parallel()
	var s *Server
	t.Run("inner", func(t *testing.T) { s = Start(t) })
	if s == nil {
		t.Skip("no server")
	}
	if err := knock(t.Context(), s.Addr()); err == nil {
		t.Error("the server outlived its test")
	}
	if _, err := os.Stat(s.p.dir); !os.IsNotExist(err) {
		t.Errorf("the server's directory outlived its test: %v", err)
	}
}

// TestTakenPortIsNotUsed has another server on the port, which took no lock.
func TestTakenPortIsNotUsed(t *testing.T) {
	t.Parallel()
	other := Start(t)
	tries := 0
	p, err := startRetrying(t.Context(), func(p *process) error {
		port := p.port
		if tries++; tries <= 3 {
			port = other.p.port
		}
		p.args = []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", ""}
		if tries <= 3 {
			releasePort(p.port)
			p.port = port // other answers here
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard()
	if tries != 4 {
		t.Errorf("%d tries, want 4", tries)
	}
}

func TestRestartWaitsForThePort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill()
	l, err := net.Listen("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.p.restart(ctx); err == nil {
		t.Error("restarted on a port that is taken")
	}
	l.Close()
	s.Restart()
	if err := ping(t, s, waitDeadline); err != nil {
		t.Error(err)
	}
}

func TestFreePortsAreDistinct(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[int]bool{}
	for range 50 {
		wg.Go(func() {
			port, err := reservePort()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[port] {
				t.Errorf("port %d twice, or %v", port, err)
			}
			seen[port] = true
		})
	}
	wg.Wait()
	for port := range seen {
		releasePort(port)
	}
	l, err := net.Listen("tcp", loopback(FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestOwnClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 1)
	if len(c.Masters) != 3 || len(c.Replicas) != 3 || len(c.Addrs()) != 6 {
		t.Fatalf("%d masters, %d replicas, %d addresses", len(c.Masters), len(c.Replicas), len(c.Addrs()))
	}
	checkCluster(t, c.Addrs())
	c.Masters[0].Kill()
	waitRole(t, c.Replicas[0], "master")
	c.WaitOK()
	c.Masters[0].Restart()
	waitRole(t, c.Masters[0], "slave")
	c.WaitOK()
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	addrs, master, replica := StartSentinel(t, "limits")
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: addrs})
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}

	master.Kill()
	waitRole(t, replica, "master")
	// A sentinel that has not heard of the promotion would take the old master
	// for the only one when it comes back, and make the new one its replica.
	for _, addr := range addrs {
		waitNamed(t, addr, "limits", replica.Addr())
	}
	master.Restart()
	waitPair(t, master, replica)
}

// waitPair waits until one of two servers is the other's replica. Which of them
// is the master may change on a busy machine, where sentinels take one that is
// slow for one that is down.
func waitPair(t *testing.T, a, b *Server) {
	t.Helper()
	waitUntil(t, "wait until one follows the other", func(ctx context.Context) error {
		var roles []string
		for _, s := range []*Server{a, b} {
			is, err := role(ctx, s)
			if err != nil {
				return err
			}
			roles = append(roles, is)
		}
		slices.Sort(roles)
		if !slices.Equal(roles, []string{"master", "slave"}) {
			return fmt.Errorf("they are %v", roles)
		}
		return nil
	})
}

// role returns what a server says that it is: "master" or "slave".
func role(ctx context.Context, s *Server) (string, error) {
	c := s.p.client()
	defer c.Close()
	info, err := c.Info(ctx, "replication").Result()
	return infoField(info, "role"), err
}

// waitUntil waits until is returns nil. The waits of a failover may each take long.
func waitUntil(t *testing.T, what string, is func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitDeadline)
	defer cancel()
	if err := until(ctx, what, is); err != nil {
		t.Fatal(err)
	}
}

// waitNamed waits until a sentinel names want as the master.
func waitNamed(t *testing.T, sentinel, name, want string) {
	t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer c.Close()
	waitUntil(t, "wait until "+sentinel+" names "+want, func(ctx context.Context) error {
		host, err := c.GetMasterAddrByName(ctx, name).Result()
		if err != nil {
			return err
		}
		if addr := net.JoinHostPort(host[0], host[1]); addr != want {
			return fmt.Errorf("it names %s", addr)
		}
		return nil
	})
}

func waitRole(t *testing.T, s *Server, want string) {
	t.Helper()
	waitUntil(t, "wait until "+s.Addr()+" is a "+want, func(ctx context.Context) error {
		is, err := role(ctx, s)
		if err != nil {
			return err
		}
		if is != want {
			return fmt.Errorf("it is a %s", is)
		}
		return nil
	})
}
