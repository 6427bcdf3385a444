package redislog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// awaitMost is how long a change waits for all daemons.
	awaitMost = 2 * time.Second
	// ackLives is how long what a daemon has in force stays written down.
	ackLives = time.Minute
	// ackEvery is how often that is renewed.
	ackEvery = 20 * time.Second
)

// ack writes down what this daemon has in force, for tags that ever had a change. Of
// those where something is left out it does not have all.
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

// await waits until all daemons have in force what is wanted, and returns those that
// have not after some time. For those that are late it does not wait.
func (s *Store) await(ctx context.Context, wanted map[*tag]streamID) (pending []string, _ error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	whole, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	pending, err := s.daemons(whole)
	if err != nil {
		return nil, wrap(fmt.Errorf("the daemons that should have it in force are not known: %w", err))
	}
	isLate := s.lateOf(whole, pending)
	// A pause grows, so that one daemon costs little and many do not press.
	for pause := time.Millisecond; ; pause = min(pause+time.Millisecond, 10*time.Millisecond) {
		if pending, err = s.without(whole, pending, wanted); len(pending) == 0 {
			return nil, nil
		}
		if err != nil {
			s.redis.ReloadAfter(whole, err)
		} else if !slices.ContainsFunc(pending, func(id string) bool { return !isLate[id] }) {
			return pending, nil
		}
		select {
		case <-whole.Done():
			if ctx.Err() == nil {
				s.late.add(pending, wanted)
			}
			return pending, nil
		case <-time.After(pause):
		}
	}
}

// daemons returns the daemons to wait for, this one included.
func (s *Store) daemons(ctx context.Context) (ids []string, err error) {
	for s.o.Daemons != nil {
		if ids, err = s.o.Daemons(ctx); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
	if !slices.Contains(ids, s.o.ID) {
		ids = append(slices.Clone(ids), s.o.ID)
	}
	return ids, nil
}

// without returns the pending daemons that do not have in force what is wanted.
func (s *Store) without(ctx context.Context, pending []string, wanted map[*tag]streamID) ([]string, error) {
	tags := slices.Collect(maps.Keys(wanted))
	replies := make([]*redis.SliceCmd, len(tags))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			replies[i] = pipe.HMGet(ctx, t.seen, pending...)
		}
	})
	if err != nil {
		return pending, err
	}
	var left []string
	for i, id := range pending {
		for j, t := range tags {
			text, _ := replies[j].Val()[i].(string)
			if seen, err := parseID(text); err != nil || seen.compare(wanted[t]) < 0 {
				left = append(left, id)
				break
			}
		}
	}
	return left, nil
}

// forgetGone removes what daemons wrote down that are not in the register any more.
func (s *Store) forgetGone(ctx context.Context, tags []*tag) error {
	alive, err := s.daemons(ctx)
	if err != nil {
		return err
	}
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
			// One that is about to sign in may be among them; it writes again.
			if len(gone) > len(alive) {
				pipe.HDel(ctx, t.seen, gone...)
			}
		}
	})
}
