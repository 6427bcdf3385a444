package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/redistest"
)

// A node that answers again is asked again, although the place by which it was
// first known is now at another node, which does not answer.
func TestNodeIsProbedByWhatItHas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// Nobody is to be promoted, nor to refuse for want of a majority.
	cluster := redistest.StartCluster(t, 0, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	o := options(redisstore.Cluster, cluster.Addrs()...)
	o.HashTags, o.Timeout = 6, 300*time.Millisecond
	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1000, Period: 24 * time.Hour})
	var nodes []*redis.Client
	for _, m := range cluster.Masters {
		nodes = append(nodes, client(t, m.Addr()))
	}
	asked := func(user string) error {
		return s.Take(ctx, []bucket.Hit{hit(l, user, 1)}, make([]bucket.Decision, 1))
	}
	// One user for each place, by slot.
	users := make(map[int]string)
	for i := 0; len(users) < 6; i++ {
		user := strconv.Itoa(i)
		eventually(t, "a cluster that runs decides", func() bool { return asked(user) == nil })
		for _, n := range nodes {
			for key := range keysOf(t, n, o.Prefix) {
				slot := int(n.ClusterKeySlot(ctx, key).Val())
				if users[slot] == "" {
					users[slot] = user
				}
			}
		}
	}
	// The slots of six places are the middles of sixths: two are at each master.
	first, second := 16384/12, 3*16384/12
	if users[first] == "" || users[second] == "" {
		t.Fatalf("the slots in use are %v", users)
	}
	moveSlot(t, nodes, nodes[0], nodes[1], first)
	eventually(t, "the move is known", func() bool {
		before := callsTo(t, metrics, cluster.Masters[1].Addr())
		return asked(users[first]) == nil && callsTo(t, metrics, cluster.Masters[1].Addr()) > before
	})

	cluster.Masters[1].Pause()
	cluster.Masters[0].Pause()
	eventually(t, "the second place is not asked for", func() bool {
		start := time.Now()
		return asked(users[second]) != nil && time.Since(start) < o.Timeout/3
	})
	cluster.Masters[0].Resume()
	eventually(t, "the second place is decided again", func() bool { return asked(users[second]) == nil })
	cluster.Masters[1].Resume()
	eventually(t, "the first place is decided again", func() bool { return asked(users[first]) == nil })
}

// callsTo is how often the store counts to have called a node.
func callsTo(t testing.TB, metrics *prometheus.Registry, addr string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "ratelimitd_redis_calls_total" && m.GetLabel()[0].GetValue() == addr {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// moveSlot moves a slot, with all its keys, as an operator does.
func moveSlot(t testing.TB, nodes []*redis.Client, from, to *redis.Client, slot int) {
	t.Helper()
	ctx := context.Background()
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	target := to.ClusterMyID(ctx).Val()
	do(to, "cluster", "setslot", slot, "importing", from.ClusterMyID(ctx).Val())
	do(from, "cluster", "setslot", slot, "migrating", target)
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	for _, key := range from.ClusterGetKeysInSlot(ctx, slot, 1000).Val() {
		do(from, "migrate", host, port, key, 0, 5000)
	}
	do(to, "cluster", "setslot", slot, "node", target)
	for _, n := range nodes {
		do(n, "cluster", "setslot", slot, "node", target)
	}
}
