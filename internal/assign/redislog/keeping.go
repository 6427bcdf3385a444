package redislog

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// lookAtKeepingEvery is how often to check whether Redis keeps assignments. That may
// change while daemons run, and a caller can then soon cause evictions.
const lookAtKeepingEvery = 10 * time.Second

// keeping says why servers may forget assignments: sentences by address.
type keeping map[string]string

// watchKeeping warns if assignments are used and a server may forget them, at the start
// and when that changes.
func (s *Store) watchKeeping(ctx context.Context) {
	told := make(keeping)
	for every := time.Second; ; every = lookAtKeepingEvery {
		if !pause(ctx, every) {
			return
		}
		if !s.Loaded() || s.table.Len() == 0 {
			continue
		}
		now, err := s.lookAtKeeping(ctx)
		if err != nil {
			continue // the log already says that Redis does not answer
		}
		for _, addr := range slices.Sorted(maps.Keys(now)) {
			if why := now[addr]; why != told[addr] {
				if why != "" {
					s.o.Log.Warn("redis: "+why, "node", addr)
				}
				told[addr] = why
			}
		}
	}
}

// lookAtKeeping asks all masters how they keep their data.
func (s *Store) lookAtKeeping(ctx context.Context) (keeping, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	var mu sync.Mutex
	found := make(keeping)
	look := func(ctx context.Context, c *redis.Client) error {
		why, err := s.whyForgotten(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			found[c.Options().Addr] = why
		}
		return err
	}
	return found, s.redis.EachMaster(ctx, look)
}

// whyForgotten returns why a server may forget assignments, or "".
func (s *Store) whyForgotten(ctx context.Context, c *redis.Client) (string, error) {
	info, err := redisconn.Info(ctx, c, "memory", "persistence", "server")
	if err != nil {
		return "", err
	}
	policy := info["maxmemory_policy"]
	switch {
	case strings.HasPrefix(policy, "allkeys-"):
		return "maxmemory-policy is " + strconv.Quote(policy) + ": when memory is short it evicts assignments, blocks and plans among them, until a daemon has put them back; set it to noeviction", nil
	case s.o.CachePath == "" && !s.persists(ctx, c, info):
		return "it persists nothing, neither an append-only file nor snapshots: if it restarts while no daemon runs, all assignments are gone; turn on persistence, or set assignments.cache_path", nil
	}
	return "", nil
}

// persists reports whether a server keeps files. If it does not say, it may.
func (s *Store) persists(ctx context.Context, c *redis.Client, info map[string]string) bool {
	if info["aof_enabled"] != "0" {
		return true
	}
	if config, err := c.ConfigGet(ctx, "save").Result(); err == nil {
		return config["save"] != ""
	}
	// Without the right to ask: a server that has run for an hour and never saved any of
	// its changes.
	up, _ := strconv.ParseInt(info["uptime_in_seconds"], 10, 64)
	return up < 3600 || info["rdb_saves"] != "0"
}
