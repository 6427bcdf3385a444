package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// modes calls test for each layout of Redis that tests share.
func modes(t *testing.T, test func(t *testing.T, o options)) {
	t.Run("single", func(t *testing.T) { test(t, newOptions(redisconn.Single, redistest.Single(t))) })
	t.Run("cluster", func(t *testing.T) { test(t, newOptions(redisconn.Cluster, redistest.Cluster(t)...)) })
}

// options are those of a daemon: its connection, its hash tags, and the clock of
// Redis, if that is not to be Redis's own.
type options struct {
	redisconn.Options
	HashTags int
	Clock    func() int64
}

// newOptions are those of a daemon under a prefix of its own.
func newOptions(mode redisconn.Mode, addresses ...string) options {
	return options{
		Options: redisconn.Options{
			Mode:      mode,
			Addresses: addresses,
			Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
			// The machines that run tests may be slow; what is tested is not.
			Timeout: 10 * time.Second,
		},
		HashTags: 32,
	}
}

// daemon is a daemon with a connection.
type daemon struct {
	fleet.Register
	hashTags int
}

func open(t testing.TB, o options) daemon {
	t.Helper()
	conn, err := redisconn.New(o.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return daemon{fleet.Register{Redis: conn, Clock: o.Clock}, o.HashTags}
}

// join returns the daemon's membership, by o and defaults.
func (d daemon) join(o fleet.Options) *fleet.Membership {
	o.HashTags = d.hashTags
	if o.StateFormat == 0 {
		o.StateFormat, o.Reads = 1, []int{1}
	}
	return fleet.New(d.Register, o)
}

func newFleet(t testing.TB, o options, address string) *fleet.Membership {
	t.Helper()
	return open(t, o).join(named(o, address))
}

// named returns the options of a daemon with an address, on the clock of Redis.
func named(o options, address string) fleet.Options {
	f := fleet.Options{Address: address, Version: "v1.2"}
	if o.Clock != nil {
		f.Clock = func() time.Time { return time.UnixMicro(o.Clock()) }
	}
	return f
}

func signIn(t testing.TB, m *fleet.Membership) {
	t.Helper()
	if err := m.SignIn(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func daemons(t testing.TB, d daemon) []fleet.Daemon {
	t.Helper()
	m, _, err := d.Daemons(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func addresses(daemons []fleet.Daemon) string {
	var all []string
	for _, m := range daemons {
		all = append(all, m.Address)
	}
	return strings.Join(all, " ")
}

// run runs a membership, and returns a function that ends it and waits for its end.
func run(f *fleet.Membership) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { f.Run(ctx) })
	return func() {
		cancel()
		wait.Wait()
	}
}
