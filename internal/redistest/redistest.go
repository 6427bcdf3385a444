//go:build unix

// Package redistest gives tests a real Redis. It imports nothing of the project.
//
// [Single] and [Cluster] return the addresses of servers that all tests of a
// process share; they are started at the first use. Tests must pick random key
// prefixes and must not flush. [Start], [StartCluster] and [StartSentinel] start
// servers of a test's own, to kill or pause, and [StartWithClock] one whose clock
// the test steps. [StartProxy] makes the faults of a network, and [Forward] puts a
// listener of the test's own before a server.
//
// The shared servers come from the first of these that has them:
//
//   - REDIS_ADDRS, a comma-separated list of servers that run already, cluster
//     nodes and others;
//   - Docker, for the single server;
//   - redis-server on PATH, where a test's own servers always come from.
//
// REDIS_SERVER names another program in place of redis-server, and then Docker is not used.
//
// If there is none, the test is skipped; with CI set it fails.
//
// A package that uses the shared servers has
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }
//
// which stops them. When a test binary dies before that, the kernel ends its
// processes (on Linux).
//
// Nothing is persisted, and all servers listen on loopback alone.
package redistest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds each start, and each wait of a test's own servers. It allows for a
// busy machine, and for an image that is pulled.
const startTimeout = 2 * time.Minute

// errUnavailable means that this machine lacks what is needed.
var errUnavailable = errors.New("not available")

var (
	single  = sync.OnceValues(func() ([]string, error) { return open(1) })
	cluster = sync.OnceValues(func() ([]string, error) { return open(masters) })
)

// stops end what was started for the process.
var stops struct {
	sync.Mutex
	funcs []func()
}

// Single returns the address, host:port, of a single Redis that the tests of
// this process share.
func Single(t testing.TB) string {
	t.Helper()
	addrs, err := single()
	check(t, err)
	return addrs[0]
}

// Cluster returns the addresses of a cluster of three masters that the tests of
// this process share.
func Cluster(t testing.TB) []string {
	t.Helper()
	addrs, err := cluster()
	check(t, err)
	return append([]string(nil), addrs...)
}

// Run runs the tests of m, stops the shared servers and returns the exit code. Tests with
// a Redis wait more than they compute, so at least six run at a time unless the command
// line says otherwise.
func Run(m *testing.M) int {
	defer func() {
		for _, stop := range stops.funcs {
			stop()
		}
	}()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err) // package testing has the flag
	}
	return m.Run()
}

func stopAtTheEnd(stop func()) {
	stops.Lock()
	defer stops.Unlock()
	stops.funcs = append(stops.funcs, stop)
}

// open returns the addresses of shared servers: one, or the nodes of a cluster.
func open(n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	addrs, err := fromEnvironment(ctx, n > 1)
	if addrs != nil || err != nil {
		return addrs, err
	}
	if n == 1 && os.Getenv("REDIS_SERVER") == "" {
		if addr, stop, err := startContainer(ctx); err == nil {
			stopAtTheEnd(stop)
			return []string{addr}, nil
		}
	}
	ps, err := startAll(ctx, n, 0)
	if err != nil {
		return nil, err
	}
	stopAtTheEnd(func() { discardAll(ps) })
	return addrsOf(ps), nil
}

// fromEnvironment returns the servers in REDIS_ADDRS that are nodes of a cluster, or those
// that are not.
func fromEnvironment(ctx context.Context, nodes bool) (addrs []string, err error) {
	for addr := range strings.SplitSeq(os.Getenv("REDIS_ADDRS"), ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		c := dial(addr, "")
		defer c.Close()
		info, err := c.Info(ctx, "cluster").Result()
		if err != nil {
			return nil, fmt.Errorf("REDIS_ADDRS: INFO of %s: %w", addr, err)
		}
		if nodes == (infoField(info, "cluster_enabled") == "1") {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// check ends the test if a server could not be started: where this machine lacks what is
// needed, it is skipped on a developer's machine and fails in CI.
func check(t testing.TB, err error) {
	t.Helper()
	const hint = "the tests need Redis 7 (apt-get install redis-server, or set REDIS_ADDRS) and gcc"
	switch {
	case errors.Is(err, errUnavailable) && !InCI():
		t.Skipf("redistest: %v; %s", err, hint)
	case errors.Is(err, errUnavailable):
		t.Fatalf("redistest: %v; %s", err, hint)
	case err != nil:
		t.Fatalf("redistest: %v", err)
	}
}

// InCI reports whether the tests run in CI, where nothing may be missing.
func InCI() bool {
	switch strings.ToLower(os.Getenv("CI")) {
	case "", "0", "false":
		return false
	}
	return true
}

// Client returns a client of the server at addr, which the end of the test
// closes.
func Client(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// Now returns the time by a server's clock.
func Now(t testing.TB, c *redis.Client) time.Time {
	t.Helper()
	now, err := c.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// Keys returns the keys of a prefix with when each expires by the server's clock; a key
// that stays for good has the zero time.
func Keys(t testing.TB, c *redis.Client, prefix string) map[string]time.Time {
	t.Helper()
	ctx := context.Background()
	keys := make(map[string]time.Time)
	scan := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		at, err := c.PExpireTime(ctx, scan.Val()).Result()
		switch {
		case err != nil:
			t.Fatal(err)
		case at > 0:
			keys[scan.Val()] = time.UnixMilli(at.Milliseconds())
		case at == -1:
			keys[scan.Val()] = time.Time{}
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}
