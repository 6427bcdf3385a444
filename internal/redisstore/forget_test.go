package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestResetsAdmitNoMoreThanTheLimitEach(t *testing.T) {
	t.Parallel()
	for mode, addrs := range map[redisconn.Mode]func(testing.TB) []string{
		redisconn.Single:  single,
		redisconn.Cluster: redistest.Cluster,
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o := options(mode, addrs(t)...)
			o.DenialMemory = time.Second
			stores := []bucket.Store{open(t, o), open(t, o), open(t, o)}
			client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: o.Addresses, IsClusterMode: mode == redisconn.Cluster})
			t.Cleanup(func() { client.Close() })
			buckettest.RunResets(t, stores, func(t *testing.T, keys []string) {
				if err := client.Del(context.Background(), keys...).Err(); err != nil {
					t.Error(err)
				}
				for _, s := range stores {
					s.Forget(keys)
				}
			})
		})
	}
}

// A denial is forgotten by any of the keys of its request, also by one that did not
// deny.
func TestForgetEndsDenialsThatInvolveAKey(t *testing.T) {
	s := newSideBySide(t, time.Second)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: 24 * time.Hour})
	deny, other, apart := hit(l, "deny", 1), hit(l, "other", 1), hit(l, "apart", 1)
	take(t, s.remembers, deny)
	for _, tc := range []struct {
		forget bucket.Hit
		known  bool
	}{{deny, false}, {other, false}, {apart, true}} {
		take(t, s.remembers, deny, other)
		before := s.known()
		take(t, s.remembers, deny, other)
		if s.known() == before {
			t.Fatal("the denial is not remembered")
		}
		s.remembers.Forget([]string{s.remembers.Locate(&tc.forget).Key})
		before = s.known()
		take(t, s.remembers, deny, other)
		if known := s.known() > before; known != tc.known {
			t.Errorf("after %s was forgotten, the denial is remembered: %v", tc.forget.Key, known)
		}
	}
}

// What this daemon took alone, while Redis was away, is forgotten too.
func TestForgetReachesTheFallback(t *testing.T) {
	r := newRig(t, func(o *testOptions) {
		o.Timeout = 100 * time.Millisecond
		o.Fallback = fallback.New(fallback.Options{
			Mode: bucket.FailLocal, Local: memstore.New(memstore.Options{MaxKeys: 1000}), Replicas: func() int { return 2 },
		})
	})
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 4, Period: 24 * time.Hour}), "a", 2)
	r.proxy.Refuse()
	if o := r.take(context.Background(), h); !o.degraded() || o.decisions[0].Remaining != 0 {
		t.Fatalf("without Redis: %+v", o)
	}
	r.store.Forget([]string{r.store.Locate(&h).Key})
	if o := r.take(context.Background(), h); !o.degraded() || !o.decisions[0].Allowed() {
		t.Errorf("after the key was forgotten: %+v", o)
	}
}

// The key that Locate names is the one that a take writes.
func TestLocateNamesTheStateInRedis(t *testing.T) {
	t.Parallel()
	for mode, addrs := range map[redisconn.Mode]func(testing.TB) []string{
		redisconn.Single:  single,
		redisconn.Cluster: redistest.Cluster,
	} {
		t.Run(string(mode), func(t *testing.T) {
			o := options(mode, addrs(t)...)
			s := open(t, o)
			l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 9, Period: 24 * time.Hour})
			for i := range 20 {
				h := hit(l, fmt.Sprint(i), 1)
				take(t, s, h)
				at := s.Locate(&h)
				want := fmt.Sprintf("%s{%s}:%s", o.Prefix, at.Tag, h.Key)
				if at.Key != want || at.Node == "" || at.OnFailure != bucket.FailError || at.Share != nil {
					t.Errorf("%+v, want the key %s", at, want)
				}
				if mode == redisconn.Cluster && i == 0 {
					continue // the topology is not known at first
				}
				node := redistest.Client(t, at.Node)
				if mode == redisconn.Cluster && at.Node == "a node of the cluster" {
					continue
				}
				if n, err := node.Exists(context.Background(), at.Key).Result(); n != 1 || err != nil {
					t.Errorf("%s has no key %s: %v", at.Node, at.Key, err)
				}
			}
		})
	}
}

// On a daemon that decides alone, Locate says by which share.
func TestLocateSaysWhatDecidesWithoutRedis(t *testing.T) {
	o := options(redisconn.Single, redistest.Single(t))
	o.Fallback = fallback.New(fallback.Options{
		Mode: bucket.FailLocal, Local: memstore.New(memstore.Options{MaxKeys: 10}), Replicas: func() int { return 3 },
	})
	t.Cleanup(func() { o.Fallback.Close() })
	s := open(t, o)
	spec := bucket.Spec{Algorithm: bucket.GCRA, Requests: 10, Period: 24 * time.Hour}
	h := hit(newLimit(t, spec), "a", 1)
	if at := s.Locate(&h); at.OnFailure != bucket.FailLocal || at.Daemons != 3 || at.Share.Requests != 3 {
		t.Errorf("got %+v", at)
	}
	spec.OnStoreFailure = bucket.FailError
	h = hit(newLimit(t, spec), "a", 1)
	if at := s.Locate(&h); at.OnFailure != bucket.FailError || at.Share != nil {
		t.Errorf("a limit of the mode error: %+v", at)
	}
	h.Role = bucket.Aside
	if at := s.Locate(&h); at.OnFailure != bucket.FailAllow {
		t.Errorf("a limit of the mode error that denies nobody: %+v", at)
	}
}
