package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Ping takes from a limit of its own, so it needs all that a Take needs: it fails on a
// replica, which cannot write. If Redis refuses, its error wraps bucket.ErrRefused,
// like that of Refusal.
func (s *Store) Ping(ctx context.Context) error {
	// Each ping uses another tag, far from the last one: one node that is down is not
	// the whole cluster.
	const golden = 0x9e3779b9 // the golden ratio of 2^32
	far := s.pings.Add(1) * golden
	tag := int(uint64(far) * uint64(len(s.backend.tags)) >> 32)
	return s.explain(tag, s.backend.pipe.Ask(ctx, s.backend.ping(tag)))
}

// refusalWait bounds Refusal: a Redis that does not answer must not keep a daemon from
// starting, beyond what its operator allows it for an answer.
func (s *Store) refusalWait() time.Duration { return max(time.Second, s.redis.Timeout()) }

// Refusal tries out what a daemon needs from Redis, at each master of a cluster, for a
// second or redis.timeout at most. If Redis refuses, it returns why, in an error that wraps
// bucket.ErrRefused. It returns nil if Redis decides, and also if Redis does not
// answer, since that may change soon.
func (s *Store) Refusal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.refusalWait())
	defer cancel()
	for {
		err := s.tryAll(ctx)
		if errors.Is(err, bucket.ErrRefused) {
			return err
		}
		// After a timeout, the connection may be there at the second try.
		if err == nil || ctx.Err() != nil || reasonOf(err) != fallback.Timeout {
			return nil
		}
	}
}

// tryAll tries out each server that decides.
func (s *Store) tryAll(ctx context.Context) error {
	if s.redis.Cluster() == nil {
		// A cluster node refuses keys of several tags, whichever tags it has.
		return s.explain(0, s.tryOut(ctx, 0, len(s.backend.tags)-1))
	}
	addresses, err := s.backend.pipe.Masters(ctx)
	if err != nil {
		return asRefusal(s.redis.Unannounced(err))
	}
	errs := make([]error, len(addresses))
	var tries sync.WaitGroup
	for tag, address := range addresses {
		if slices.Index(addresses, address) == tag {
			tries.Go(func() { errs[tag] = asRefusal(s.redis.Explain(address, s.tryOut(ctx, tag))) })
		}
	}
	tries.Wait()
	for _, err := range errs {
		if errors.Is(err, bucket.ErrRefused) {
			return err
		}
	}
	return errors.Join(errs...)
}

// tryOut takes from a limit of the daemon's own, by a key of each tag, and gives that
// back: the two run all commands that the script needs.
func (s *Store) tryOut(ctx context.Context, tags ...int) error {
	r := s.backend.trial(tryLimit, "~start", slices.Compact(tags)...)
	err := s.backend.pipe.Ask(ctx, r)
	if err == nil {
		r.Mode = script.GiveBack
		err = s.backend.pipe.Ask(ctx, r)
	}
	if redisconn.IsScriptsRight(err) {
		return cmp.Or(s.missingRight(ctx, r.Tag), err)
	}
	return err
}

// missingRight returns the error of the first of the script's commands that this user
// may not run, or nil. For a command within a script, Redis 7.0 does not say which one
// it is.
func (s *Store) missingRight(ctx context.Context, tag int) error {
	key := s.backend.heads[tag] + "~right"
	return s.firstRefused(ctx, tag, [][]any{{"time"}, {"mget", key}, {"set", key, "", "px", 1}, {"del", key}})
}

// firstRefused returns the error of the first of the commands that this user may not run,
// at the server of a tag, or nil.
func (s *Store) firstRefused(ctx context.Context, tag int, commands [][]any) error {
	server, err := s.serverOf(ctx, tag)
	if err != nil {
		return nil
	}
	for _, command := range commands {
		if err := server.Do(ctx, command...).Err(); redis.HasErrorPrefix(err, "NOPERM") {
			return err
		}
	}
	return nil
}

// HolderRights returns why this user may not run a command that limits with holders need
// besides those of all limits, or nil. A Redis that does not answer is no reason.
func (s *Store) HolderRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.refusalWait())
	defer cancel()
	const tag = 0
	key := s.backend.heads[tag] + "~right"
	commands := [][]any{
		{"zadd", key, 1, "x"}, {"pexpire", key, 1}, {"zcard", key}, {"zcount", key, 1, 1}, {"zscore", key, "x"}, {"zrange", key, 0, 0}, {"zrevrange", key, 0, 0},
		{"zrangebyscore", key, 1, 1}, {"zremrangebyscore", key, 1, 1}, {"zremrangebyrank", key, 0, 0}, {"zrem", key, "x"},
	}
	return s.firstRefused(ctx, tag, commands)
}

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
