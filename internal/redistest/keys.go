//go:build unix

package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns a client of the server at addr, which the end of the test
// closes.
func Client(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// Keys returns the keys of a prefix with how long each has to live.
func Keys(t testing.TB, c *redis.Client, prefix string) map[string]time.Duration {
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
