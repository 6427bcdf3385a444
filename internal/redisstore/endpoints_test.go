package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// balanced is a cluster behind an address that its nodes do not know: each is
// reached at a port of that address only, which it announces.
type balanced struct {
	t       testing.TB
	cluster *redistest.OwnCluster
	nodes   []*redis.Client // past the address
	addrs   []string        // of the nodes, at the address
}

// balancer is an address where nothing else listens: at 127.0.0.1 a client would find
// the nodes by their ports alone. At 127.0.0.1 the ports that are announced are free.
const balancer = "127.0.0.2"

// startBalanced starts a cluster of nodes with these arguments.
func startBalanced(t testing.TB, args ...string) *balanced {
	t.Helper()
	b := &balanced{t: t, cluster: redistest.StartCluster(t, 0, args...)}
	for _, m := range b.cluster.Masters {
		listener, err := net.Listen("tcp", net.JoinHostPort(balancer, strconv.Itoa(redistest.FreePort(t))))
		if err != nil {
			t.Skipf("this machine has no second loopback address: %v", err)
		}
		redistest.Forward(t, listener, m.Addr())
		b.nodes = append(b.nodes, redistest.Client(t, m.Addr()))
		b.addrs = append(b.addrs, listener.Addr().String())
	}
	for i, addr := range b.addrs {
		_, port, _ := strings.Cut(addr, ":")
		do(t, b.nodes[i], "config", "set", "cluster-announce-port", port)
	}
	asynctest.Eventually(t, "every node knows the ports of all", b.announced)
	return b
}

func (b *balanced) announced() bool {
	for _, n := range b.nodes {
		text := fmt.Sprint(n.Do(context.Background(), "cluster", "slots").Val())
		for _, addr := range b.addrs {
			_, port, _ := strings.Cut(addr, ":")
			if !strings.Contains(text, " "+port+" ") {
				return false
			}
		}
	}
	return true
}

// takeWhileASlotMoves takes from limits on all hash tags, and from one whose slot
// moves, and compares what remains with what was taken.
func takeWhileASlotMoves(t *testing.T, o testOptions, nodes []*redis.Client) {
	t.Helper()
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1000, Period: 24 * time.Hour})
	second := newLimit(t, bucket.Spec{Name: "second", Algorithm: bucket.FixedWindow, Requests: 1000, Period: 24 * time.Hour})
	var all []bucket.Hit
	for i := range 40 {
		all = append(all, hit(l, strconv.Itoa(i), 1))
	}
	moving := []bucket.Hit{hit(l, "moving", 1), hit(second, "moving", 1)}
	takes := 0
	takeAll := func() {
		t.Helper()
		var wait sync.WaitGroup
		for _, h := range moving {
			wait.Go(func() {
				d := make([]bucket.Decision, 1)
				if err := s.Take(context.Background(), []bucket.Hit{h}, d); err != nil {
					t.Error(err)
				}
			})
		}
		take(t, s, all...)
		wait.Wait()
		takes++
	}
	takeAll()
	var from, to *redis.Client
	var slot int64
	var keys []string
	for i, n := range nodes {
		for key := range redistest.Keys(t, n, o.Prefix) {
			if strings.Contains(key, "|user=moving#") {
				from, to = n, nodes[(i+1)%len(nodes)]
				slot = n.ClusterKeySlot(context.Background(), key).Val()
				keys = append(keys, key)
			}
		}
	}
	beginMove(t, from, to, slot)
	migrate(t, from, to, keys[:1])
	takeAll() // ASK
	migrate(t, from, to, from.ClusterGetKeysInSlot(context.Background(), int(slot), 1000).Val())
	takeAll()
	endMove(t, from, to, slot)
	takeAll() // MOVED
	for _, h := range append(all, moving...) {
		h.Cost = 0
		if d := take(t, s, h)[0]; d.Remaining != int64(1000-takes) {
			t.Errorf("%s: %d of 1000 remain after %d takes", h.Key, d.Remaining, takes)
		}
	}
}

// Nodes that do not know their address are reached at the address of the cluster, also
// after a redirection.
func TestClusterOfUnknownEndpointsIsReached(t *testing.T) {
	t.Parallel()
	b := startBalanced(t, "--cluster-preferred-endpoint-type", "unknown-endpoint")
	takeWhileASlotMoves(t, options(redisconn.Cluster, b.addrs[0]), b.nodes)
}

// Every other way to announce a node leads to it too.
func TestAnnouncedEndpointsAreReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		host string // by which the first node is reached
		args []string
	}{
		{"hostnames", "127.0.0.1", []string{"--cluster-preferred-endpoint-type", "hostname", "--cluster-announce-hostname", "localhost"}},
		{"unknown at an IPv6 address", "::1", []string{"--bind", "127.0.0.1 ::1", "--cluster-preferred-endpoint-type", "unknown-endpoint"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.host == "::1" {
				needIPv6(t)
			}
			cluster := redistest.StartCluster(t, 0, c.args...)
			var nodes []*redis.Client
			for _, m := range cluster.Masters {
				nodes = append(nodes, redistest.Client(t, m.Addr()))
			}
			_, port, _ := net.SplitHostPort(cluster.Masters[0].Addr())
			takeWhileASlotMoves(t, options(redisconn.Cluster, net.JoinHostPort(c.host, port)), nodes)
		})
	}
}

func needIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	l.Close()
}

// Nodes that are to announce a hostname and have none are reached by their IP
// address, and the log says what is missing, once.
func TestMissingHostnamesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0, "--cluster-preferred-endpoint-type", "hostname")
	var log asynctest.Buffer
	o := options(redisconn.Cluster, cluster.Addrs()[0])
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1000, Period: 24 * time.Hour})
	var hits []bucket.Hit
	for i := range 40 {
		hits = append(hits, hit(l, strconv.Itoa(i), 1))
	}
	take(t, s, hits...)
	if n := strings.Count(log.String(), "set cluster-announce-hostname"); n != 1 {
		t.Errorf("the log tells of it %d times:\n%s", n, log.String())
	}
}

// The error for an announced address that cannot be reached says that the cluster
// announced it.
func TestUnreachableEndpointIsNamed(t *testing.T) {
	t.Parallel()
	b := startBalanced(t)
	o := options(redisconn.Cluster, b.cluster.Addrs()[0])
	o.Timeout = time.Second
	err := open(t, o).Ping(context.Background())
	if err == nil || !strings.Contains(err.Error(), "the address that the cluster announces for a node") {
		t.Errorf("the error is %v", err)
	}
	_, port, _ := net.SplitHostPort(b.addrs[0])
	o.Addresses = []string{"127.0.0.1:" + port} // which is announced too, and where nothing is
	err = open(t, o).Ping(context.Background())
	if err == nil || strings.Contains(err.Error(), "announces") {
		t.Errorf("of an address in the settings the error is %v", err)
	}
}
