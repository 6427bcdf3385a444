//go:build unix

// Package redistest gives tests a real Redis. It imports nothing of the project.
//
// [Single] and [Cluster] return the addresses of servers that all tests of a
// process share; they are started at the first use. Tests must pick random key
// prefixes and must not flush. [Start], [StartCluster] and [StartSentinel] start
// servers of a test's own, to stop, kill or pause, and [StartWithClock] one whose
// clock the test steps. [StartProxy] makes the faults of a network, and [Forward]
// puts a listener of the test's own before a server.
//
// The shared servers come from the first of these ways that works:
//
//   - REDIS_ADDRS, a comma-separated list of servers that run already. Cluster
//     returns the cluster nodes in it, and Single the first other server. If the
//     list has only one kind, the other kind comes from the next way. A server
//     that does not answer is a failure.
//   - Docker, through testcontainers-go: a local image redis:7 or redis:8, else
//     an image made of the redis-server on PATH, else redis:7-alpine pulled.
//     The engine must run on this machine, as ports are published on loopback.
//   - redis-server on PATH. A test's own servers always come from there.
//
// RATELIMITD_TEST_REDIS=docker or =path forces one way. If no way works, the test
// is skipped; with CI set it fails.
//
// A package that uses the shared servers has
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }
//
// which stops them. When a test binary dies before that, the kernel ends its
// processes (on Linux), and the next test that starts a Redis removes its
// containers and directories.
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
)

const (
	// envAddrs names servers that run already.
	envAddrs = "REDIS_ADDRS"
	// envWay forces a way: wayDocker or wayPath.
	envWay = "RATELIMITD_TEST_REDIS"

	wayAddrs  = "addrs"
	wayDocker = "docker"
	wayPath   = "path"

	// startDeadline bounds the start of one shared Redis by one way. It
	// allows for an image that is built or pulled and for a busy machine.
	startDeadline = 2 * time.Minute

	// sharedMasters is how many masters the shared cluster has.
	sharedMasters = 3
)

// kind is which of the two shared things is wanted.
type kind int

const (
	kindSingle kind = iota
	kindCluster
)

func (k kind) String() string {
	if k == kindCluster {
		return "cluster"
	}
	return "single server"
}

// source is a running Redis: where it listens, where it came from, and how to
// end it.
type source struct {
	addrs []string
	from  string
	stop  func()
}

// errUnavailable means that this machine lacks a way, as opposed to a way that was
// tried and failed.
var errUnavailable = errors.New("not available")

// shared is one lazily started Redis of the process.
type shared struct {
	once sync.Once
	src  source
	took time.Duration
	err  error
}

var sharedRedis [2]shared // by kind

// stops ends what was started for the process. Its lock orders the start of
// one kind against that of the other.
var stops struct {
	sync.Mutex
	funcs []func()
}

// Single returns the address, host:port, of a single Redis that the tests of
// this process share.
func Single(t testing.TB) string {
	t.Helper()
	return get(t, kindSingle)[0]
}

// Cluster returns the addresses of a cluster of three masters that the tests of
// this process share.
func Cluster(t testing.TB) []string {
	t.Helper()
	return get(t, kindCluster)
}

// Run runs the tests of m, stops the shared servers and returns the exit code. Tests with
// a Redis wait more than they compute, so at least six run at a time unless the command
// line says otherwise.
func Run(m *testing.M) int {
	defer stopShared()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err) // package testing has the flag
	}
	return m.Run()
}

func stopShared() {
	stops.Lock()
	defer stops.Unlock()
	for _, stop := range stops.funcs {
		stop()
	}
	stops.funcs = nil
}

func get(t testing.TB, k kind) []string {
	t.Helper()
	s := &sharedRedis[k]
	s.once.Do(func() {
		begin := time.Now()
		s.src, s.err = open(k, os.Getenv(envWay), os.Getenv(envAddrs))
		s.took = time.Since(begin)
		if s.err == nil && s.src.stop != nil {
			stops.Lock()
			stops.funcs = append(stops.funcs, s.src.stop)
			stops.Unlock()
		}
		if s.err == nil {
			t.Logf("redistest: %s at %s from %s, in %v",
				k, strings.Join(s.src.addrs, ","), s.src.from, s.took.Round(time.Millisecond))
		}
	})
	if errors.Is(s.err, errUnavailable) {
		missing(t, s.err)
	}
	if s.err != nil {
		t.Fatalf("redistest: %s: %v", k, s.err)
	}
	return append([]string(nil), s.src.addrs...)
}

// missing ends a test that lacks Redis or a tool: the test is skipped on a
// developer's machine and fails in CI.
func missing(t testing.TB, err error) {
	t.Helper()
	const hint = "the tests need Redis 7 (apt-get install redis-server, or set " + envAddrs + ") and gcc"
	if InCI() {
		t.Fatalf("redistest: %v; %s", err, hint)
	}
	t.Skipf("redistest: %v; %s", err, hint)
}

// InCI reports whether the tests run in CI, where nothing may be missing.
func InCI() bool {
	switch strings.ToLower(os.Getenv("CI")) {
	case "", "0", "false":
		return false
	}
	return true
}

// open gives a Redis of kind k by the first way that can, or by the forced one.
func open(k kind, forced, addrs string) (source, error) {
	if forced != "" {
		src, err := openBy(forced, k, addrs)
		if err != nil {
			// Not wrapped, since a forced way must not be skipped.
			return source{}, fmt.Errorf("%s=%s: %v", envWay, forced, err)
		}
		return src, nil
	}
	var reasons []string
	var failed string
	for _, way := range []string{wayAddrs, wayDocker, wayPath} {
		src, err := openBy(way, k, addrs)
		if err == nil {
			src.from += failed
			return src, nil
		}
		if !errors.Is(err, errUnavailable) {
			if way != wayDocker {
				return source{}, err
			}
			// An engine may answer and still be of no use, without an image or
			// a network. Its error is logged with the way that worked.
			failed = fmt.Sprintf(" (Docker failed: %v)", err)
		}
		reasons = append(reasons, err.Error())
	}
	return source{}, fmt.Errorf("%w: %s", errUnavailable, strings.Join(reasons, "; "))
}

func openBy(way string, k kind, addrs string) (source, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	switch way {
	case wayAddrs:
		return openAddrs(ctx, k, addrs)
	case wayDocker:
		return openDocker(ctx, k)
	case wayPath:
		return openPath(ctx, k)
	}
	return source{}, fmt.Errorf("unknown way: want %s or %s", wayDocker, wayPath)
}
