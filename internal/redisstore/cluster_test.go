package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// On a cluster, requests with two keys of different slots race with requests with one
// of them. No limit admits too many, and what a request took that lost a race is given
// back.
func TestRacesOverSlotsAdmitNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	stores := []*redisstore.Store{open(t, o), open(t, o), open(t, o)}
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			narrow := newLimit(t, bucket.Spec{Algorithm: a, Requests: 40, Period: 24 * time.Hour})
			wide := newLimit(t, bucket.Spec{Algorithm: a, Requests: 900, Period: 24 * time.Hour})
			var both, alone atomic.Int64
			var wait sync.WaitGroup
			for i := range 60 {
				wait.Go(func() {
					s := stores[i%len(stores)]
					if i%2 == 0 {
						if bucket.Allowed(take(t, s, hit(narrow, "n", 1), hit(wide, "w", 1))) {
							both.Add(1)
						}
					} else if bucket.Allowed(take(t, s, hit(narrow, "n", 1))) {
						alone.Add(1)
					}
				})
			}
			wait.Wait()
			// Buckets refill a little while this runs, and a give-back to one
			// returns a little less than was taken.
			slack := int64(0)
			if a.IsBucket() {
				slack = 1
			}
			if n := both.Load() + alone.Load(); n > 40+slack || n < 30 {
				t.Errorf("%s: %d admitted by a limit of 40", a, n)
			}
			left := take(t, stores[0], hit(wide, "w", 0))[0].Remaining
			if want := 900 - both.Load(); left < want-slack || left > want+slack {
				t.Errorf("%s: %d remain of 900 after %d were admitted", a, left, both.Load())
			}
		})
	}
}

// A limit that denied at the check may have room again when postpaid hits are charged.
// The request stays denied, for none of its other hits was taken.
func TestDeniedGroupStaysDeniedWhenPostpaidIsCharged(t *testing.T) {
	t.Parallel()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	var clock, step atomic.Int64
	clock.Store(1e15)
	o.Clock = func() int64 { return clock.Add(step.Load()) }
	s := open(t, o)
	plain := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: 24 * time.Hour})
	paid := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Millisecond, Postpaid: bucket.PostpaidAlways})
	for i := range 50 {
		// Pairs of places, nearly all on two of the 32 tags. From here on each
		// command runs 600 us after the one before.
		user := fmt.Sprint(i)
		step.Store(0)
		take(t, s, hit(paid, "paid"+user, 1))
		step.Store(600)
		d := take(t, s, hit(plain, user, 1), hit(paid, "paid"+user, 1))
		step.Store(0)
		left := take(t, s, hit(plain, user, 0))[0].Remaining
		if bucket.Allowed(d) != (left == 4) {
			t.Errorf("%d remain of 5 after a request that got %+v", left, d)
		}
	}
}

func TestDeniedGroupOverSlotsIsFree(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Cluster, redistest.Cluster(t)...))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 2, Period: 24 * time.Hour})
	paid := newLimit(t, bucket.Spec{Name: "used", Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour, Postpaid: bucket.PostpaidAlways})
	take(t, s, hit(l, "empty", 2))
	group := []bucket.Hit{hit(paid, "p", 4), hit(l, "empty", 1), hit(l, "r", -1)}
	for i := range 20 {
		group = append(group, hit(l, fmt.Sprint(i), 1))
	}
	take(t, s, hit(l, "r", 1))
	d := take(t, s, group...)
	if bucket.Allowed(d) || d[1].Allowed() || !d[3].Allowed() || d[3].Remaining != 2 {
		t.Fatalf("the group: %+v", d)
	}
	if d[0].Remaining != 6 {
		t.Errorf("%d remain of the postpaid limit, which is charged all the same; want 6", d[0].Remaining)
	}
	for i := range 20 {
		if p := take(t, s, hit(l, fmt.Sprint(i), 0))[0]; p.Remaining != 2 {
			t.Errorf("key %d was charged by a denied group: %+v", i, p)
		}
	}
	if p := take(t, s, hit(l, "r", 0))[0]; p.Remaining != 1 {
		t.Errorf("a refund was made by a denied group: %+v", p)
	}
	// With room, the same group is charged everywhere, once.
	take(t, s, hit(l, "empty", -2))
	if d := take(t, s, group...); !bucket.Allowed(d) || d[0].Remaining != 2 || d[2].Remaining != 2 || d[3].Remaining != 1 {
		t.Errorf("the group with room: %+v", d)
	}
}

// MOVED and ASK are followed while a slot is on the move and after; TRYAGAIN
// is waited out. No charge is lost or made twice.
func TestNoChargeIsLostWhileASlotMoves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartCluster(t, 0)
	o := options(redisconn.Cluster, cluster.Addrs()...)
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100, Period: 24 * time.Hour})
	second := newLimit(t, bucket.Spec{Name: "second", Algorithm: bucket.FixedWindow, Requests: 100, Period: 24 * time.Hour})
	group := []bucket.Hit{hit(l, "a", 1), hit(second, "a", 1)}
	take(t, s, group...)

	var source *redis.Client
	var keys []string
	for _, m := range cluster.Masters {
		c := redistest.Client(t, m.Addr())
		for key := range redistest.Keys(t, c, o.Prefix) {
			source = c
			keys = append(keys, key)
		}
	}
	if len(keys) != 2 {
		t.Fatalf("keys %q, want the two of the group on one node", keys)
	}
	slot := source.ClusterKeySlot(ctx, keys[0]).Val()
	var target *redis.Client
	for _, m := range cluster.Masters {
		if m.Addr() != source.Options().Addr {
			target = redistest.Client(t, m.Addr())
		}
	}
	beginMove(t, source, target, slot)

	take(t, s, group...) // both keys are still at the source
	migrate(t, source, target, keys[:1])
	// One key is here and one there: TRYAGAIN, until the second has moved.
	took := make(chan error, 1)
	go func() { took <- s.Take(ctx, group, make([]bucket.Decision, len(group))) }()
	asynctest.Eventually(t, "the group was sent, and sent again", func() bool {
		return refusals(t, source, "TRYAGAIN")+refusals(t, target, "TRYAGAIN") >= 2
	})
	migrate(t, source, target, keys[1:])
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	take(t, s, group...) // ASK: both keys are at the target, the slot is not
	endMove(t, source, target, slot)
	d := take(t, s, group...) // MOVED
	if d[0].Remaining != 95 || d[1].Remaining != 95 {
		t.Errorf("after 5 takes of 1 of 100: %+v", d)
	}
}

// refusals returns how often a node has replied with an error of this kind.
func refusals(t testing.TB, c *redis.Client, kind string) (n int) {
	t.Helper()
	info, err := c.InfoMap(context.Background(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Sscanf(info["Errorstats"]["errorstat_"+kind], "count=%d", &n)
	return n
}

// Keys of hostile entries stay in the slot of their tag, whatever they hold.
func TestHostileEntriesKeepTheirSlot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	o.HashTags = 1
	s := open(t, o)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addresses, Protocol: 2})
	t.Cleanup(func() { c.Close() })
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 3, Period: 24 * time.Hour})
	values := []string{"", "{", "}", "{}", "{a}", "}{", "\x00", "a|b=c", "#token_bucket", strings.Repeat("ä{", 2500), "\xff\xfe"}
	for _, v := range values {
		take(t, s, hit(l, v, 1))
	}
	keys := make(map[string]bool)
	var mu sync.Mutex
	if err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		for key := range redistest.Keys(t, m, o.Prefix) {
			keys[key] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(keys) != len(values) {
		t.Errorf("%d values have %d keys", len(values), len(keys))
	}
	slots := make(map[int64]bool)
	for key := range keys {
		if len(key) > bucket.MaxKey+64 || bytes.ContainsAny([]byte(key), "\x00\n") {
			t.Errorf("the key %q", key)
		}
		tag := key[strings.Index(key, "{")+1 : strings.Index(key, "}")]
		if strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 || tag == "" {
			t.Errorf("the key %q has other braces than its tag's", key)
		}
		slots[c.ClusterKeySlot(ctx, key).Val()] = true
	}
	if len(slots) != 1 {
		t.Errorf("one hash tag, but several slots: %v", slots)
	}
}
