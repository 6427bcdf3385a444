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
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A node that answers again is asked again, although the tag by which it was first
// probed is now at another node, which does not answer.
func TestNodeIsProbedByWhatItHas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// No node may be promoted, or refuse because it sees no majority.
	cluster := redistest.StartCluster(t, 0, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	o := options(redisconn.Cluster, cluster.Addrs()...)
	o.HashTags, o.Timeout = 6, 300*time.Millisecond
	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1000, Period: 24 * time.Hour})
	var nodes []*redis.Client
	for _, m := range cluster.Masters {
		nodes = append(nodes, redistest.Client(t, m.Addr()))
	}
	asked := func(user string) error {
		return s.Take(ctx, []bucket.Hit{hit(l, user, 1)}, make([]bucket.Decision, 1))
	}
	// One user for each place, by slot.
	users := make(map[int]string)
	for i := 0; len(users) < 6; i++ {
		user := strconv.Itoa(i)
		asynctest.Eventually(t, "a cluster that runs decides", func() bool { return asked(user) == nil })
		for _, n := range nodes {
			for key := range redistest.Keys(t, n, o.Prefix) {
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
	moveSlot(t, nodes[0], nodes[1], int64(first))
	asynctest.Eventually(t, "the move is known", func() bool {
		calls := func() float64 { return metric(t, metrics, "redis_calls_total", cluster.Masters[1].Addr()) }
		before := calls()
		return asked(users[first]) == nil && calls() > before
	})

	cluster.Masters[1].Pause()
	cluster.Masters[0].Pause()
	asynctest.Eventually(t, "the second place is not asked for", func() bool {
		start := time.Now()
		return asked(users[second]) != nil && time.Since(start) < o.Timeout/3
	})
	cluster.Masters[0].Resume()
	asynctest.Eventually(t, "the second place is decided again", func() bool { return asked(users[second]) == nil })
	cluster.Masters[1].Resume()
	asynctest.Eventually(t, "the first place is decided again", func() bool { return asked(users[first]) == nil })
}

// While one of its two keys has moved, a group tries until its deadline and
// then fails; it costs nothing, and groups of one of those keys go on, in the
// same batches.
func TestGroupOverAMovingSlotFailsForFree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartCluster(t, 0)
	o := options(redisconn.Cluster, cluster.Addrs()...)
	o.HashTags, o.Timeout = 3, 2*time.Second
	s := open(t, o)
	day := 24 * time.Hour
	one := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1_000_000, Period: day}), "a", 1)
	two := hit(newLimit(t, bucket.Spec{Name: "second", Algorithm: bucket.SlidingWindow, Requests: 1_000_000, Period: day}), "a", 1)
	take(t, s, one, two)
	var from, to *redis.Client
	var slot int64
	for i, m := range cluster.Masters {
		for key := range redistest.Keys(t, redistest.Client(t, m.Addr()), o.Prefix) {
			from, to = redistest.Client(t, m.Addr()), redistest.Client(t, cluster.Masters[(i+1)%3].Addr())
			slot = from.ClusterKeySlot(ctx, key).Val()
		}
	}
	beginMove(t, from, to, slot)
	migrate(t, from, to, from.ClusterGetKeysInSlot(ctx, int(slot), 1).Val())

	pairs := make(chan error, 5)
	for range cap(pairs) {
		go func() { pairs <- s.Take(ctx, []bucket.Hit{one, two}, make([]bucket.Decision, 2)) }()
	}
	singles, start := 0, time.Now()
	for failed := 0; failed < cap(pairs); {
		select {
		case err := <-pairs:
			if err == nil || time.Since(start) < o.Timeout/2 {
				t.Errorf("a group with a key here and one there ends after %v with %v", time.Since(start), err)
			}
			failed++
		default:
			for _, h := range []bucket.Hit{one, two} {
				if d := take(t, s, h)[0]; !d.Allowed() {
					t.Fatalf("one key of the slot: %+v", d)
				}
			}
			singles++
		}
	}
	migrate(t, from, to, from.ClusterGetKeysInSlot(ctx, int(slot), 1).Val())
	d := take(t, s, one, two)
	endMove(t, from, to, slot)
	if want := int64(1_000_000 - 2 - singles); d[0].Remaining != want || d[1].Remaining != want {
		t.Errorf("after %d takes of each and 2 of both: %+v", singles, d)
	}
	take(t, s, one, two)
}

// moveSlot moves a slot with all its keys, as an operator does.
func moveSlot(t testing.TB, from, to *redis.Client, slot int64) {
	t.Helper()
	beginMove(t, from, to, slot)
	migrate(t, from, to, from.ClusterGetKeysInSlot(context.Background(), int(slot), 1000).Val())
	endMove(t, from, to, slot)
}

// beginMove opens a slot at both ends.
func beginMove(t testing.TB, from, to *redis.Client, slot int64) {
	t.Helper()
	ctx := context.Background()
	do(t, to, "cluster", "setslot", slot, "importing", from.ClusterMyID(ctx).Val())
	do(t, from, "cluster", "setslot", slot, "migrating", to.ClusterMyID(ctx).Val())
}

// endMove gives a slot to its new master, and tells that first.
func endMove(t testing.TB, from, to *redis.Client, slot int64) {
	t.Helper()
	for _, n := range []*redis.Client{to, from} {
		do(t, n, "cluster", "setslot", slot, "node", to.ClusterMyID(context.Background()).Val())
	}
}

func migrate(t testing.TB, from, to *redis.Client, keys []string) {
	t.Helper()
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	for _, key := range keys {
		do(t, from, "migrate", host, port, key, 0, 5000)
	}
}

func do(t testing.TB, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}
