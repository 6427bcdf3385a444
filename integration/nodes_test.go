package integration

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// holders returns the master that holds the keys of each subject. A subject
// has one descriptor.
func holders(t testing.TB, prefix string, nodes []*redistest.Server, subjects ...string) map[string]*redistest.Server {
	t.Helper()
	found := make(map[string]*redistest.Server)
	for _, n := range nodes {
		for _, key := range keysAt(t, n, prefix) {
			for _, s := range subjects {
				if strings.Contains(key, "|"+s+"#") {
					found[s] = n
				}
			}
		}
	}
	if len(found) != len(subjects) {
		t.Fatalf("only %d of %d subjects have keys", len(found), len(subjects))
	}
	return found
}

// keysAt returns the keys of a prefix that a node holds.
func keysAt(t testing.TB, n *redistest.Server, prefix string) []string {
	t.Helper()
	ctx := context.Background()
	var keys []string
	scan := redistest.Client(t, n.Addr()).Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		keys = append(keys, scan.Val())
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// info returns a field of INFO, or "" while the node does not answer.
func info(c *redis.Client, section, field string) string {
	text, _ := c.Info(context.Background(), section).Result()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return v
		}
	}
	return ""
}

// waitReplicated waits until a master's replica has all writes so far.
func waitReplicated(t testing.TB, master *redistest.Server) {
	t.Helper()
	c := redistest.Client(t, master.Addr())
	wanted, err := strconv.Atoi(info(c, "replication", "master_repl_offset"))
	if err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "the replica has what its master has", func() bool {
		_, rest, _ := strings.Cut(info(c, "replication", "slave0"), "offset=")
		text, _, _ := strings.Cut(rest, ",")
		offset, err := strconv.Atoi(text)
		return err == nil && offset >= wanted
	})
}

// masterOf returns the address of the master of a slot according to a node.
func masterOf(c *redis.Client, slot int) (string, error) {
	shards, err := c.ClusterShards(context.Background()).Result()
	if err != nil {
		return "", err
	}
	for _, s := range shards {
		has := func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }
		if !slices.ContainsFunc(s.Slots, has) {
			continue
		}
		for _, n := range s.Nodes {
			if n.Role == "master" && n.Health == "online" {
				return net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10)), nil
			}
		}
	}
	return "", fmt.Errorf("no node has slot %d", slot)
}

// stalls notes the longest time to a ping. On a busy machine it can exceed the
// timeout of a daemon.
type stalls struct{ longest atomic.Int64 }

// watchStalls pings the nodes until the test ends.
func watchStalls(t testing.TB, nodes []*redistest.Server) *stalls {
	s := new(stalls)
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(func() { cancel(); wait.Wait() })
	for _, n := range nodes {
		c := redistest.Client(t, n.Addr())
		wait.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				start := time.Now()
				_ = c.Ping(ctx).Err()
				took := int64(time.Since(start))
				for old := s.longest.Load(); took > old && !s.longest.CompareAndSwap(old, took); old = s.longest.Load() {
				}
				<-tick.C
			}
		})
	}
	return s
}

// reached reports whether a node ever took this long.
func (s *stalls) reached(d time.Duration) bool { return time.Duration(s.longest.Load()) >= d }
