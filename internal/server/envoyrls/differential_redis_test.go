//go:build unix

package envoyrls_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// TestAnswersOnRedisAreThoseOfTheModel asks in the first worlds on Redis: its
// script must decide like the memory store.
func TestAnswersOnRedisAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		compareWorlds(t, soaktest.Long(6, 600), 160, onRedis(redisconn.Single, redistest.Single(t)), fromFiles)
	})
	t.Run("cluster", func(t *testing.T) {
		compareWorlds(t, soaktest.Long(3, 300), 160, onRedis(redisconn.Cluster, redistest.Cluster(t)...), fromFiles)
	})
}

// onRedis opens stores with the test's clock, each under a prefix of its own.
func onRedis(mode redisconn.Mode, addresses ...string) opener {
	return func(t testing.TB, c *asynctest.Clock) bucket.Store {
		conn, err := redisconn.New(redisconn.Options{
			Mode:      mode,
			Addresses: addresses,
			Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
			Timeout:   servertest.Patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := redisstore.New(conn, redisstore.Options{
			HashTags: 32,
			Batch:    redisstore.BatchBounds{Size: 1000, InFlight: 1, Queue: 10_000},
			Clock:    c.Micros,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = s.Close(), conn.Close() })
		return s
	}
}
