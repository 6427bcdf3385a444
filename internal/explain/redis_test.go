//go:build unix

package explain_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// patience is how long Redis may take where it is not away.
const patience = 10 * time.Second

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

func TestExplainSaysWhatDecideDoesOnRedis(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		holdAgainstDecide(t, 15, 40, onRedis(t, patience, nil, redisconn.Single, redistest.Single(t)))
	})
	t.Run("cluster", func(t *testing.T) {
		holdAgainstDecide(t, 10, 40, onRedis(t, patience, nil, redisconn.Cluster, redistest.Cluster(t)...))
	})
}

// onRedis has deciders keep their states in Redis, each under a prefix of its own.
func onRedis(t testing.TB, timeout time.Duration, f *fallback.Fallback, mode redisconn.Mode, addresses ...string) func(*decide.Options) {
	return func(o *decide.Options) {
		conn, err := redisconn.New(redisconn.Options{Mode: mode, Addresses: addresses, Prefix: fmt.Sprintf("test-%x", rand.Uint64()), Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		s, err := redisstore.New(conn, redisstore.Options{
			HashTags: 32, Batch: redisstore.BatchBounds{Size: 1000, InFlight: 1, Queue: 10_000}, Clock: o.Now, Fallback: f,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = s.Close(), conn.Close() })
		o.Store = s
	}
}

// While Redis is away, an explanation says so, and what decides then.
func TestExplainWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	f := fallback.New(fallback.Options{Mode: bucket.FailLocal, Local: memstore.New(memstore.Options{MaxKeys: 1000}), Replicas: func() int { return 3 }})
	t.Cleanup(func() { f.Close() })
	r := newRig(t, onRedis(t, time.Second, f, redisconn.Single, proxy.Addr()))
	ask := decidetest.Asking("used=x", 1)
	asynctest.Eventually(t, "Redis answers", func() bool { return !request(r, ask).Degraded })
	x := request(r, ask)
	l := x.Descriptors[0].Limits[0]
	if l.Tag == "" || l.Node != proxy.Addr() || !strings.Contains(l.Key, "{"+l.Tag+"}:d|used=x#") || l.Remaining != 5 {
		t.Errorf("got %+v", l)
	}
	if l.OnFailure != bucket.FailLocal || l.Daemons != 3 || l.Location.Share.Requests != 1 {
		t.Errorf("if Redis fails: %v, as one of %d, by %+v", l.OnFailure, l.Daemons, l.Location.Share)
	}
	proxy.Refuse()
	t.Cleanup(func() { proxy.Heal(t) })
	if x := request(r, ask); !x.Degraded || x.Descriptors[0].Limits[0].Remaining != 1 {
		t.Errorf("without Redis, got %s", show(x))
	}
	if err := r.Store.Ping(context.Background()); err == nil {
		t.Error("Redis answers")
	}
}
