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

// explain returns err in words for operators; address is that of the node.
func (s *Store) explain(address string, err error) error {
	return asRefusal(s.redis.Explain(address, err))
}

// asRefusal returns err, wrapping bucket.ErrRefused if Redis refuses.
func asRefusal(err error) error {
	if errors.Is(err, redisconn.ErrRefused) {
		return refusal{err}
	}
	return err
}

type refusal struct{ error }

// Is reports that a refusal is bucket.ErrRefused, for errors.Is.
func (refusal) Is(target error) bool { return target == bucket.ErrRefused }

// Unwrap returns the error that describes the refusal.
func (r refusal) Unwrap() error { return r.error }

// tryAll tries out each server that decides.
func (s *Store) tryAll(ctx context.Context) error {
	cluster := s.redis.Cluster()
	if cluster == nil {
		// A cluster node refuses keys of several tags, whichever tags it has.
		return s.explain(redisconn.AnyNode, s.tryOut(ctx, 0, len(s.tags)-1))
	}
	addresses, err := s.masters(ctx, cluster)
	if err != nil {
		return asRefusal(s.redis.Unannounced(err))
	}
	errs := make([]error, len(addresses))
	var tries sync.WaitGroup
	for tag, address := range addresses {
		if slices.Index(addresses, address) == tag {
			tries.Go(func() { errs[tag] = s.explain(address, s.tryOut(ctx, tag)) })
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
	taken := s.ownRequest(tryLimit, "~start", slices.Compact(tags)...)
	alone := s.alone(taken)
	alone.send(ctx)
	if taken.Err == nil {
		taken.Mode = script.GiveBack
		alone.send(ctx)
	}
	if redisconn.IsScriptsRight(taken.Err) {
		return cmp.Or(s.missingRight(ctx, taken.tag), taken.Err)
	}
	return taken.Err
}

// missingRight returns the error of the first of the script's commands that this user
// may not run, or nil. For a command within a script, Redis 7.0 does not say which one
// it is.
func (s *Store) missingRight(ctx context.Context, tag int) error {
	key := s.heads[tag] + "~right"
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
	key := s.heads[tag] + "~right"
	commands := [][]any{
		{"zadd", key, 1, "x"}, {"pexpire", key, 1}, {"zcard", key}, {"zcount", key, 1, 1}, {"zscore", key, "x"}, {"zrange", key, 0, 0}, {"zrevrange", key, 0, 0},
		{"zrangebyscore", key, 1, 1}, {"zremrangebyscore", key, 1, 1}, {"zremrangebyrank", key, 0, 0}, {"zrem", key, "x"},
	}
	return s.firstRefused(ctx, tag, commands)
}

// tryLimit has a period that is long enough for its hits to be given back.
var tryLimit = neverReached(time.Minute)

// neverReached returns a limit that nobody reaches.
func neverReached(period time.Duration) *bucket.Limit {
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: period})
	if err != nil {
		panic(err) // the numbers are above
	}
	return l
}
