package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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

// startWait bounds what is asked at start: a Redis that does not answer must not keep a daemon from
// starting, beyond what its operator allows it for an answer.
func (s *Store) startWait() time.Duration { return max(time.Second, s.redis.Timeout()) }

// Refusal tries out what a daemon needs from Redis, at each master of a cluster, for a
// second or redis.timeout at most. If Redis refuses, it returns why, in an error that wraps
// bucket.ErrRefused. It returns nil if Redis decides, and also if Redis does not
// answer, since that may change soon.
func (s *Store) Refusal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.startWait())
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
	ctx, cancel := context.WithTimeout(ctx, s.startWait())
	defer cancel()
	const tag = 0
	key := s.backend.heads[tag] + "~right"
	commands := [][]any{
		{"zadd", key, 1, "x"}, {"pexpire", key, 1}, {"zcard", key}, {"zcount", key, 1, 1}, {"zscore", key, "x"}, {"zrange", key, 0, 0}, {"zrevrange", key, 0, 0},
		{"zrangebyscore", key, 1, 1}, {"zremrangebyscore", key, 1, 1}, {"zremrangebyrank", key, 0, 0}, {"zrem", key, "x"},
	}
	return s.firstRefused(ctx, tag, commands)
}

// Warnings asks each master about itself, and returns a sentence for the operator about
// each thing that loses limits or answers, and about a master that could not be asked.
func (s *Store) Warnings(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*s.redis.Timeout()) // a new connection, INFO, and three round trips
	defer cancel()
	var mu sync.Mutex
	var warnings []string
	ask := func(ctx context.Context, c *redis.Client) error {
		found := s.warningsOf(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		for _, w := range found {
			warnings = append(warnings, fmt.Sprintf("redis: %s: %s", c.Options().Addr, w))
		}
		return nil
	}
	if err := s.redis.EachMaster(ctx, ask); err != nil {
		warnings = append(warnings, fmt.Sprintf("redis: could not ask every master: %v", err))
	}
	return warnings
}

func (s *Store) warningsOf(ctx context.Context, c *redis.Client) (warnings []string) {
	info, err := redisconn.Info(ctx, c)
	if err != nil {
		return []string{fmt.Sprintf("could not read its maxmemory-policy and its replicas: %v", err)}
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("maxmemory-policy is %q: when memory is short it drops limits, and requests pass that should not; set it to noeviction", policy))
	}
	// A master of a cluster that is cut off stops by itself. The field of good replicas is
	// there only with min-replicas-to-write.
	_, needsReplicas := info["min_slaves_good_slaves"]
	if s.redis.Cluster() == nil && info["connected_slaves"] != "0" && !needsReplicas {
		warnings = append(warnings, "it has replicas, and min-replicas-to-write is 0: if it is cut off and a replica takes over, both decide, each by the whole limit; set min-replicas-to-write 1 and min-replicas-max-lag 3")
	}
	if trip := roundTrip(ctx, c); trip*minRoundTrips > s.redis.Timeout() {
		warnings = append(warnings, fmt.Sprintf("a round trip takes %v, too long for redis.timeout %v: the failure mode will decide for requests that wait for another's batch; set redis.timeout to %v or more, and redis.batch.in_flight to 4",
			trip, s.redis.Timeout(), trip*minRoundTrips))
	}
	return warnings
}

// minRoundTrips is how many round trips redis.timeout should have room for: an answer
// takes two where it waits for a batch in flight, and networks vary.
const minRoundTrips = 4

// roundTrip returns the shortest of three round trips, or 0 if one failed.
func roundTrip(ctx context.Context, c *redis.Client) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for range 3 {
		start := time.Now()
		if c.Time(ctx).Err() != nil {
			return 0
		}
		shortest = min(shortest, time.Since(start))
	}
	return shortest.Round(time.Millisecond)
}
