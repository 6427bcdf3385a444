package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Warnings asks each master for its settings, and returns a sentence for the
// operator for each one that may lose limits, or that could not be asked for.
func (s *Store) Warnings(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
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
	switch c := s.redis.UniversalClient.(type) {
	case *redis.ClusterClient:
		if err := c.ForEachMaster(ctx, look); err != nil {
			warnings = append(warnings, fmt.Sprintf("redis: could not look at every master: %v", err))
		}
	case *redis.Client:
		_ = look(ctx, c)
	}
	return warnings
}

func evictionWarning(ctx context.Context, c *redis.Client) string {
	addr := c.Options().Addr
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Sprintf("redis: %s: could not read its maxmemory-policy: %v", addr, err)
	}
	policy := ""
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok {
			policy = v
		}
	}
	if policy == "noeviction" {
		return ""
	}
	return fmt.Sprintf("redis: %s: maxmemory-policy is %q: when memory is short it drops limits, and requests pass that should not; set it to noeviction", addr, policy)
}
