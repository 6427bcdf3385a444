package redislog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// maxAwait is how long a change waits for all known daemons. Tests on busy machines raise
// it.
var maxAwait = 2 * time.Second

const (
	// readEvery is how often the register is read again while it may lack daemons.
	readEvery = 200 * time.Millisecond
	// ackLives is how long the record of what a daemon has in force lives.
	ackLives = time.Minute
	// ackEvery is how often that is renewed.
	ackEvery = 20 * time.Second
)

// ack records what this daemon has in force, for tags that ever had a change. Tags of
// which something is left out it does not have entirely.
func (s *Store) ack(ctx context.Context, tags []*tag) error {
	tags = slices.DeleteFunc(slices.Clone(tags), func(t *tag) bool { return t.at == streamID{} || t.leftOut.all > 0 })
	if len(tags) == 0 {
		return nil
	}
	written := make([]*redis.IntCmd, len(tags))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			written[i] = pipe.HSet(ctx, t.seen, s.o.ID, t.at.String())
			pipe.PExpire(ctx, t.seen, ackLives)
		}
	})
	for i, t := range tags {
		if written[i].Err() == nil {
			t.acked = t.at
		}
	}
	return err
}

// pipelined sends commands together, within the connection's timeout.
func (s *Store) pipelined(ctx context.Context, add func(context.Context, redis.Pipeliner)) error {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	pipe := s.redis.Pipeline()
	add(ctx, pipe)
	_, err := pipe.Exec(ctx)
	return err
}

// Awaited are the daemons that a change must wait for.
type Awaited struct {
	// IDs are the IDs of the known ones.
	IDs []string
	// Mute are those of them that answer no calls because they are of an earlier version.
	Mute []string
	// Lacks is for how long there may be more, which are unknown since Redis lost their
	// register or its last sign-ins, or does not answer; none if it is not positive.
	Lacks time.Duration
	// IsMoved says that those are at most the ones that signed in just before a failover.
	IsMoved bool
}

// written holds the IDs of what a caller has written, by tag and in order.
type written map[*tag][]streamID

// last returns the ID that a daemon must have seen of a tag.
func (w written) last(t *tag) streamID { return w[t][len(w[t])-1] }

// await waits until all daemons have in force what is wanted, and returns those that do
// not have it after some time, or after maxWait. It does not wait for daemons that are
// late. While there may be unknown daemons, it waits until they are known, or certainly
// decide nothing before they have caught up. It returns the tags of which Redis has lost
// something that is wanted.
func (s *Store) await(ctx context.Context, wanted written, maxWait []assign.MaxWait) (_ assign.Reached, lost map[*tag]bool) {
	if len(wanted) == 0 {
		return assign.Reached{}, nil
	}
	began := time.Now()
	until := func(usual time.Duration) time.Time {
		for _, m := range maxWait {
			usual = time.Duration(m)
		}
		return began.Add(usual)
	}
	awaited, err := s.awaited(ctx, until(maxAwait))
	if err != nil {
		s.o.Log.Warn("redis: a change is made, and the daemons that should have it in force are not known", "error", err)
		return assign.Reached{Pending: []string{s.o.ID}, Lacks: max(0, awaited.Lacks)}, nil
	}
	if awaited, lost, err = s.awaitAll(ctx, awaited, wanted, until(maxAwait+max(0, awaited.Lacks))); err != nil {
		s.redis.ReloadAfter(ctx, err)
	}
	// Those for which it has hardly waited are not late.
	if len(awaited.IDs) > 0 && ctx.Err() == nil && time.Since(began) >= maxAwait {
		s.late.add(awaited.IDs, wanted)
	}
	return assign.Reached{Pending: awaited.IDs, Lacks: max(0, awaited.Lacks)}, lost
}

// awaitAll waits until all daemons have in force what is wanted, or those that do not are
// all late, or until some of it is lost, or until a given time, or until ctx ends. It
// looks at least once. It returns those that do not have it, the tags with losses, and
// the last error of Redis.
func (s *Store) awaitAll(ctx context.Context, awaited Awaited, wanted written, until time.Time) (_ Awaited, lost map[*tag]bool, err error) {
	isLate := s.lateOf(ctx, awaited.IDs)
	read := time.Now()
	// The pause grows, so that one daemon causes little load and many do not flood Redis.
	for pause := time.Millisecond; ; pause = min(pause+time.Millisecond, 10*time.Millisecond) {
		awaited.IDs, lost, err = s.without(ctx, awaited.IDs, wanted)
		mayLack := awaited.Lacks > 0
		if len(lost) > 0 || !mayLack && err == nil && !slices.ContainsFunc(awaited.IDs, func(id string) bool { return !isLate[id] }) {
			return awaited, lost, nil
		}
		select {
		case <-ctx.Done():
			return awaited, lost, err
		case <-time.After(min(pause, time.Until(until))):
		}
		if !time.Now().Before(until) {
			return awaited, lost, err
		}
		if !mayLack || time.Since(read) < readEvery && time.Since(read) < awaited.Lacks {
			continue
		}
		if now, err := s.awaited(ctx, until); err == nil {
			awaited, read = now, time.Now()
		}
	}
}

// awaited returns the daemons to wait for, including this one. It asks for them at least
// once, and repeatedly until a given time.
func (s *Store) awaited(ctx context.Context, until time.Time) (a Awaited, err error) {
	for s.o.Awaited != nil {
		if a, err = s.o.Awaited(ctx); err == nil {
			break
		}
		if !time.Now().Before(until) || !pause(ctx, 50*time.Millisecond) {
			return a, err
		}
	}
	if !slices.Contains(a.IDs, s.o.ID) {
		a.IDs = append(slices.Clone(a.IDs), s.o.ID)
	}
	return a, nil
}

// without returns the pending daemons that do not have in force what is wanted, and the
// tags of which Redis has lost some of it. A daemon that has seen a later change has also
// seen these only if they still exist: what was lost before anyone had read it is put
// back by nobody, and what is written afterwards has later IDs.
func (s *Store) without(ctx context.Context, pending []string, wanted written) (left []string, lost map[*tag]bool, _ error) {
	tags := slices.Collect(maps.Keys(wanted))
	seen := make([]*redis.SliceCmd, len(tags))
	changes := make([][]*redis.XMessageSliceCmd, len(tags))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			if len(pending) > 0 {
				seen[i] = pipe.HMGet(ctx, t.seen, pending...)
			}
			for _, id := range wanted[t] {
				changes[i] = append(changes[i], pipe.XRangeN(ctx, t.changes, id.String(), id.String(), 1))
			}
		}
	})
	if err != nil {
		return pending, nil, err
	}
	for i, t := range tags {
		if !slices.ContainsFunc(changes[i], func(c *redis.XMessageSliceCmd) bool { return len(c.Val()) == 0 }) {
			continue
		}
		isLost, err := s.isLost(ctx, t, wanted.last(t))
		if err != nil {
			return pending, nil, err
		}
		if isLost {
			if lost == nil {
				lost = make(map[*tag]bool)
			}
			lost[t] = true
		}
	}
	for i, id := range pending {
		for j, t := range tags {
			text, _ := seen[j].Val()[i].(string)
			if at, err := parseID(text); err != nil || at.compare(wanted.last(t)) < 0 {
				left = append(left, id)
				break
			}
		}
	}
	return left, lost, nil
}

// isLost reports whether a change missing from the stream of its tag may have been lost.
// If it was just removed for its age, the oldest entry left continues from it or from a
// later one, as does an entry put back by a daemon that had it. A stream that was evicted
// leaves the assignments.
func (s *Store) isLost(ctx context.Context, t *tag, id streamID) (bool, error) {
	var oldest *redis.XMessageSliceCmd
	var epoch *redis.SliceCmd
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		oldest, epoch = pipe.XRangeN(ctx, t.changes, "-", "+", 1), pipe.HMGet(ctx, t.assigned, epochField)
	})
	if err != nil {
		return false, err
	}
	if epoch.Val()[0] == nil || len(oldest.Val()) == 0 {
		return epoch.Val()[0] == nil, nil
	}
	text, _ := oldest.Val()[0].Values["p"].(string)
	previous, err := parseID(text)
	return err != nil || previous.compare(id) < 0, nil
}

// forgetGone removes the records of daemons that are no longer in the register.
func (s *Store) forgetGone(ctx context.Context, tags []*tag) error {
	awaited, err := s.awaited(ctx, time.Now())
	if err != nil {
		return err
	}
	alive := awaited.IDs
	replies := make([]*redis.StringSliceCmd, len(tags))
	err = s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			replies[i] = pipe.HKeys(ctx, t.seen)
		}
	})
	if err != nil || len(tags) == 0 {
		return err
	}
	return s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			gone := slices.DeleteFunc(replies[i].Val(), func(id string) bool { return slices.Contains(alive, id) })
			// A daemon that is about to sign in may be among them; it writes again.
			if len(gone) > len(alive) {
				pipe.HDel(ctx, t.seen, gone...)
			}
		}
	})
}
