//go:build unix

package redistest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// A cluster and a single server that run already are told apart.
func TestServersAreTakenFromTheEnvironment(t *testing.T) {
	nodes, single := StartCluster(t, 0).Addrs(), Start(t).Addr()
	t.Setenv("REDIS_ADDRS", strings.Join(append(nodes, single), ", "))
	for _, c := range []struct {
		n    int
		want []string
	}{{1, []string{single}}, {masters, nodes}} {
		if got, err := open(c.n); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("for %d: %v, %v, want %v", c.n, got, err, c.want)
		}
	}
	t.Setenv("REDIS_ADDRS", "127.0.0.1:1")
	if got, err := open(1); err == nil {
		t.Errorf("got %v in place of a server that is away", got)
	}
}

func TestContainerStarts(t *testing.T) {
	addr, stop, err := startContainer(t.Context())
	if err != nil {
		t.Skip(err)
	}
	defer stop()
	if err := Client(t, addr).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
