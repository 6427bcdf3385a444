package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestBadOptionsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		spoil func(*testOptions)
		want  string
	}{
		{func(o *testOptions) { o.Mode = "ring" }, "neither single, sentinel nor cluster"},
		{func(o *testOptions) { o.Addresses = nil }, "no address"},
		{func(o *testOptions) { o.Addresses = []string{"unix:redis.sock"} }, "absolute path"},
		{func(o *testOptions) { o.Mode, o.Addresses = redisconn.Cluster, []string{"unix:/redis.sock"} }, "for a single server"},
		{func(o *testOptions) { o.HashTags = 16385 }, "1 to 16384"},
		{func(o *testOptions) { o.Prefix = "a{b" }, "brace"},
		{func(o *testOptions) { o.Timeout = 0 }, "timeout"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			o := options(redisconn.Single, "127.0.0.1:1")
			tc.spoil(&o)
			if _, _, err := newStore(o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// A request can hold more keys than Lua can unpack.
func TestRequestMayHaveTenThousandKeys(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Single, redistest.Single(t)))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 2, Period: 24 * time.Hour})
	var hits []bucket.Hit
	for i := range 10_000 {
		hits = append(hits, hit(l, fmt.Sprint(i), 1))
	}
	take(t, s, hits...)
	for i, d := range take(t, s, hits...) {
		if !d.Allowed() || d.Remaining != 0 {
			t.Fatalf("hit %d of %d, the second time: %+v", i, len(hits), d)
		}
	}
	if bucket.Allowed(take(t, s, hits[9_999])) {
		t.Error("the last key was not charged")
	}
}

func TestFlushedScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	s := open(t, options(redisconn.Single, server.Addr()))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour})
	for want := int64(9); want >= 5; want-- {
		if got := take(t, s, hit(l, "a", 1))[0].Remaining; got != want {
			t.Fatalf("%d remain, want %d", got, want)
		}
		if err := redistest.Client(t, server.Addr()).ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A take without a reply is not sent again: a server that was paused got it once.
func TestTakeIsNeverRetried(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	o := options(redisconn.Single, server.Addr())
	patient := open(t, o)
	o.Timeout = 50 * time.Millisecond
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 100, Period: time.Hour})
	take(t, patient, hit(l, "a", 1))
	asynctest.Eventually(t, "a first quick answer", func() bool {
		return s.Take(ctx, []bucket.Hit{hit(l, "a", 0)}, make([]bucket.Decision, 1)) == nil
	})
	server.Pause()
	const asked = 5
	for range asked {
		err := s.Take(ctx, []bucket.Hit{hit(l, "a", 1)}, make([]bucket.Decision, 1))
		if err == nil {
			t.Fatal("a server that stands still has answered")
		}
	}
	server.Resume()
	asynctest.Eventually(t, "an answer again", func() bool {
		return s.Take(ctx, []bucket.Hit{hit(l, "a", 0)}, make([]bucket.Decision, 1)) == nil
	})
	// The server has executed whatever was in the sockets by the time their connections
	// are seen closed. One of each store is left.
	asynctest.Eventually(t, "no connection but ours", func() bool {
		list, err := redistest.Client(t, server.Addr()).ClientList(ctx).Result()
		return err == nil && strings.Count(list, "cmd=evalsha") <= 2
	})
	if taken := 99 - take(t, patient, hit(l, "a", 0))[0].Remaining; taken > asked {
		t.Errorf("%d takes were asked, %d were charged", asked, taken)
	}
}

func TestMastersThatMayLoseLimitsAreWarnedOf(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	admin := redistest.Client(t, server.Addr())
	o := options(redisconn.Single, server.Addr())
	check := func(o testOptions, want ...string) {
		t.Helper()
		w := open(t, o).Warnings(ctx)
		if len(w) != len(want) {
			t.Fatalf("the warnings %q, want %d", w, len(want))
		}
		for i, part := range want {
			if !strings.Contains(w[i], part) || !strings.Contains(w[i], o.Addresses[0]) {
				t.Errorf("the warning %q, want one about %s", w[i], part)
			}
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := admin.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check(o)

	set("maxmemory-policy", "allkeys-lru")
	check(o, `"allkeys-lru"`)
	set("maxmemory-policy", "noeviction")

	host, port, _ := strings.Cut(server.Addr(), ":")
	redistest.Start(t, "--replicaof", host+" "+port)
	asynctest.Eventually(t, "the replica is there", func() bool {
		text, err := admin.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(text, "state=online")
	})
	check(o, "min-replicas-to-write is 0")
	set("min-replicas-to-write", "1")
	check(o)

	proxy := redistest.StartProxy(t, server.Addr())
	far := options(redisconn.Single, proxy.Addr())
	proxy.Delay(400 * time.Millisecond)
	far.Timeout = 1590 * time.Millisecond
	asynctest.Eventually(t, "a timeout that is near the way there and back is warned of", func() bool {
		w := open(t, far).Warnings(ctx)
		return len(w) == 1 && strings.Contains(w[0], "redis.timeout 1.59s") && strings.Contains(w[0], far.Addresses[0])
	})
}

func TestPasswordIsAskedAtEachConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, "--requirepass", "first-secret")
	var password atomic.Value
	password.Store("wrong-secret")
	o := options(redisconn.Single, server.Addr())
	o.Password = func() (string, error) { return password.Load().(string), nil }
	s := open(t, o)
	err := s.Ping(ctx)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("a wrong password gives the error %v", err)
	}
	password.Store("first-secret")
	if err := s.Ping(ctx); err != nil {
		t.Errorf("the right password, given later: %v", err)
	}
}

// What Redis took is not given back to the fallback: the share that a daemon grants
// while Redis is away does not grow.
func TestLostGiveBackDoesNotGoToTheFallback(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, unchanged)
	h := hit(newLimit(t, bucket.Spec{
		Algorithm: bucket.TokenBucket, Requests: 10, Period: bucket.MaxPeriod, OnStoreFailure: bucket.FailLocal,
	}), "a", 4)
	taken := r.take(ctx, h)
	if !taken.decided() {
		t.Fatalf("a take got %+v", taken)
	}
	r.proxy.Refuse()
	if o := r.take(ctx, h); !o.degraded() || o.decisions[0].Remaining != 6 {
		t.Fatalf("a take of 4 from a share of 10 got %+v", o)
	}
	if err := r.store.GiveBack(ctx, []bucket.Hit{h}, taken.decisions); err == nil {
		t.Error("a give-back that Redis did not answer gives no error")
	}
	h.Cost = 1
	if o := r.take(ctx, h); !o.degraded() || o.decisions[0].Remaining != 5 {
		t.Errorf("after it a take from the share got %+v, want 5 to remain", o)
	}
}

// With min-replicas-to-write a master that was cut off from its replicas refuses, so the
// failure mode decides, not a second whole limit. A refused take charges nothing.
func TestMasterWithoutItsReplicasRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, "--min-replicas-to-write", "1")
	s := open(t, options(redisconn.Single, server.Addr()))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Hour})
	err := s.Take(ctx, []bucket.Hit{hit(l, "a", 4)}, make([]bucket.Decision, 1))
	if err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("a take gives the error %v, want NOREPLICAS", err)
	}
	if err := redistest.Client(t, server.Addr()).ConfigSet(ctx, "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "Redis decides", func() bool { return s.Ping(ctx) == nil })
	if d := take(t, s, hit(l, "a", 4))[0]; d.Remaining != 6 {
		t.Errorf("%d remain, want 6", d.Remaining)
	}
}
