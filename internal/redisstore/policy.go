package redisstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// Warnings asks each master for its settings, and returns a sentence for the operator
// about each master that may lose limits, or that could not be asked.
func (s *Store) Warnings(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	var mu sync.Mutex
	var warnings []string
	look := func(ctx context.Context, c *redis.Client) error {
		w := evictionWarning(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if w != "" {
			warnings = append(warnings, w)
		}
		return nil
	}
	if err := s.redis.EachMaster(ctx, look); err != nil {
		warnings = append(warnings, fmt.Sprintf("redis: could not look at every master: %v", err))
	}
	return warnings
}

func evictionWarning(ctx context.Context, c *redis.Client) string {
	addr := c.Options().Addr
	info, err := redisconn.Info(ctx, c, "memory")
	if err != nil {
		return fmt.Sprintf("redis: %s: could not read its maxmemory-policy: %v", addr, err)
	}
	policy := info["maxmemory_policy"]
	if policy == "noeviction" {
		return ""
	}
	return fmt.Sprintf("redis: %s: maxmemory-policy is %q: when memory is short it drops limits, and requests pass that should not; set it to noeviction", addr, policy)
}
