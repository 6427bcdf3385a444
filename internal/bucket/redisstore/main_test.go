package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// options are those of a store under a prefix of its own.
func options(mode redisstore.Mode, addresses ...string) redisstore.Options {
	return redisstore.Options{
		Mode:      mode,
		Addresses: addresses,
		Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
		HashTags:  32,
		// The machines that run tests may be slow; what is tested is not.
		Timeout: 10 * time.Second,
		Batch:   redisstore.Batch{Size: 1000, InFlight: 1, Queue: 10_000},
	}
}

func open(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newLimit(t testing.TB, s bucket.Spec) *bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func hit(l *bucket.Limit, user string, cost int64) bucket.Hit {
	subject := bucket.AppendSubject(nil, "test", []bucket.Entry{{Key: "user", Value: user}})
	return bucket.Hit{Limit: l, Key: l.AppendKey(nil, subject), Place: subject, Cost: cost}
}

func take(t testing.TB, s bucket.Store, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	d := make([]bucket.Decision, len(hits))
	if err := s.Take(context.Background(), hits, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// eventually waits until what is true, for states that are on their way.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func client(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// keysOf returns the keys of a prefix with how long each has to live.
func keysOf(t testing.TB, c *redis.Client, prefix string) map[string]time.Duration {
	t.Helper()
	ctx := context.Background()
	keys := make(map[string]time.Duration)
	scan := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		ttl, err := c.PTTL(ctx, scan.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		keys[scan.Val()] = ttl
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}
