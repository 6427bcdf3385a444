//go:build unix

package redistest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// The shared servers, by the way that this machine has.

func TestSingleIsShared(t *testing.T) {
	addr := Single(t)
	if again := Single(t); again != addr {
		t.Errorf("Single gave %s, then %s", addr, again)
	}
	checkSingle(t, addr)
}

func TestClusterIsShared(t *testing.T) {
	addrs := Cluster(t)
	if again := Cluster(t); strings.Join(again, ",") != strings.Join(addrs, ",") {
		t.Errorf("Cluster gave %v, then %v", addrs, again)
	}
	if len(addrs) != sharedMasters && os.Getenv(envAddrs) == "" {
		t.Errorf("%d addresses, want %d", len(addrs), sharedMasters)
	}
	checkCluster(t, addrs)
}

// Each way by itself.

func TestPathStartsServers(t *testing.T) {
	t.Parallel()
	if _, err := lookRedis(); err != nil {
		missing(t, err)
	}
	testWay(t, wayPath, "")
}

func TestDockerStartsServers(t *testing.T) {
	t.Parallel()
	requireDocker(t)
	testWay(t, wayDocker, "")
}

func TestAddrsAreUsed(t *testing.T) {
	t.Parallel()
	c, s := StartCluster(t, 0), Start(t)
	testWay(t, wayAddrs, strings.Join(append(c.Addrs(), s.Addr()), ", "))

	for k, addrs := range map[kind]string{
		kindSingle:  strings.Join(c.Addrs(), ","),
		kindCluster: s.Addr(),
	} {
		t.Run(k.String(), func(t *testing.T) {
			if _, err := openBy(wayAddrs, k, addrs); !errors.Is(err, errUnavailable) {
				t.Errorf("a %s among %s: error %v, want one that says not available", k, addrs, err)
			}
		})
	}
	s.Kill()
	if _, err := openBy(wayAddrs, kindSingle, s.Addr()); err == nil || errors.Is(err, errUnavailable) {
		t.Errorf("a server that is down: error %v, want one that is not taken for absence", err)
	}
}

func requireDocker(t *testing.T) {
	t.Helper()
	if err := pingDocker(t.Context()); err != nil {
		t.Skipf("no Docker engine: %v", err)
	}
}

func testWay(t *testing.T, way, addrs string) {
	t.Run("single", func(t *testing.T) {
		checkSingle(t, openForTest(t, way, kindSingle, addrs)[0])
	})
	t.Run("cluster", func(t *testing.T) {
		checkCluster(t, openForTest(t, way, kindCluster, addrs))
	})
}

// openForTest opens by one way, and checks at the end that stopping stops.
func openForTest(t *testing.T, way string, k kind, addrs string) []string {
	t.Helper()
	src, err := openBy(way, k, addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if src.stop == nil {
			return
		}
		src.stop()
		for _, addr := range src.addrs {
			if knock(context.Background(), addr) == nil {
				t.Errorf("%s still listens after stop", addr)
			}
		}
	})
	return src.addrs
}

func checkSingle(t *testing.T, addr string) {
	t.Helper()
	c := dial(addr, "")
	defer c.Close()
	if err := c.Set(t.Context(), t.Name(), "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context(), "cluster").Result()
	if err != nil {
		t.Fatal(err)
	}
	if infoField(info, "cluster_enabled") != "0" {
		t.Errorf("%s is a cluster node", addr)
	}
	checkUnpersisted(t, c)
}

// checkCluster writes keys all over the cluster through each single address, so
// that the addresses that nodes announce must work too.
func checkCluster(t *testing.T, addrs []string) {
	t.Helper()
	for _, addr := range addrs {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
		for _, tag := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			if err := c.Set(t.Context(), t.Name()+"{"+tag+"}", "1", 0).Err(); err != nil {
				t.Errorf("through %s: %v", addr, err)
			}
		}
		c.Close()
	}
	masters := 0
	c := dial(addrs[0], "")
	defer c.Close()
	shards, err := c.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards {
		masters += min(1, len(shard.Slots))
	}
	if masters != sharedMasters {
		t.Errorf("slots are on %d masters: %v", masters, shards)
	}
	checkUnpersisted(t, c)
}

func checkUnpersisted(t *testing.T, c *redis.Client) {
	t.Helper()
	if os.Getenv(envAddrs) != "" {
		return // not ours
	}
	for name, want := range map[string]string{"save": "", "appendonly": "no"} {
		got, err := c.ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != want {
			t.Errorf("%s is %q, %v, want %q", name, got[name], err, want)
		}
	}
}

func TestUnknownWayFails(t *testing.T) {
	if _, err := open(kindSingle, "nonsense", ""); err == nil || errors.Is(err, errUnavailable) {
		t.Errorf("error %v, want one that is not taken for absence", err)
	}
}

// TestNoWayLeftNamesAllReasons looks at what open says on a machine without any way.
func TestNoWayLeftNamesAllReasons(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	_, err := open(kindCluster, "", "")
	if !errors.Is(err, errUnavailable) {
		t.Fatalf("error %v, want one that says not available", err)
	}
	for _, part := range []string{"REDIS_ADDRS", "Docker", "redis-server on PATH"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if _, err := open(kindSingle, wayPath, ""); err == nil || errors.Is(err, errUnavailable) {
		t.Errorf("forced: error %v, want one that is not taken for absence", err)
	}
}

func TestInCIReadsTheVariable(t *testing.T) {
	for value, want := range map[string]bool{"": false, "false": false, "0": false, "true": true, "1": true} {
		t.Run(value, func(t *testing.T) {
			t.Setenv("CI", value)
			if got := InCI(); got != want {
				t.Errorf("CI=%q: %v, want %v", value, got, want)
			}
		})
	}
}
