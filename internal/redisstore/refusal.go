package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// refusalWait bounds Refusal: a Redis that does not answer must not keep a daemon from
// starting.
const refusalWait = time.Second

// Refusal tries out what a daemon needs from Redis, at each master of a cluster, for a
// second at most. If Redis refuses, it returns why, in an error that wraps
// bucket.ErrRefused. It returns nil if Redis decides, and also if Redis does not
// answer, since that may change soon.
func (s *Store) Refusal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refusalWait)
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
	ctx, cancel := context.WithTimeout(ctx, refusalWait)
	defer cancel()
	const tag = 0
	key := s.backend.heads[tag] + "~right"
	commands := [][]any{
		{"zadd", key, 1, "x"}, {"pexpire", key, 1}, {"zcard", key}, {"zcount", key, 1, 1}, {"zscore", key, "x"}, {"zrange", key, 0, 0}, {"zrevrange", key, 0, 0},
		{"zrangebyscore", key, 1, 1}, {"zremrangebyscore", key, 1, 1}, {"zremrangebyrank", key, 0, 0}, {"zrem", key, "x"},
	}
	return s.firstRefused(ctx, tag, commands)
}
