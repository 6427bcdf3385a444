package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// above is more than all moments: the score of the moment of the last write begins here,
// see script/lua/state.lua.
const above = 1 << 52

// Holders returns who holds slots of the hit's state: the first n of them, or of a hit that
// names a holder this one alone. It reads the set beside the script, which may change it
// meanwhile, and changes nothing.
func (s *Store) Holders(ctx context.Context, h *bucket.Hit, n int) (held bucket.Held, err error) {
	tag, key := s.backend.locate(h)
	server, err := s.serverOf(ctx, tag)
	if err != nil {
		return held, fmt.Errorf("redis: %w", err)
	}
	clock, err := s.clockOf(ctx, server)
	if err != nil {
		return held, s.explain(tag, err)
	}
	newest, err := server.ZRevRangeWithScores(ctx, key, 0, 0).Result()
	if err != nil || len(newest) == 0 {
		return held, s.explain(tag, err)
	}
	now := max(clock, int64(newest[0].Score)-above+1)
	live := &redis.ZRangeBy{Min: strconv.FormatInt(now+1, 10), Max: fmt.Sprintf("(%d", int64(above)), Count: int64(n)}
	if held.Total, err = server.ZCount(ctx, key, live.Min, live.Max).Result(); err != nil {
		return held, s.explain(tag, err)
	}
	var first []redis.Z
	if h.Holder == "" {
		first, err = server.ZRangeByScoreWithScores(ctx, key, live).Result()
	} else {
		var end float64
		if end, err = server.ZScore(ctx, key, h.Holder).Result(); err == nil && int64(end) > now && int64(end) < above {
			first = []redis.Z{{Score: end, Member: h.Holder}}
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return bucket.Held{}, s.explain(tag, err)
	}
	for _, z := range first {
		holder, _ := z.Member.(string)
		held.First = append(held.First, bucket.Holding{Holder: holder, Left: time.Duration(int64(z.Score)-clock) * time.Microsecond})
	}
	return held, nil
}

// Bill returns what the takes of an ID have charged to the hit's state, and the clock of
// Redis; the zero Bill if nothing is known of the ID. It reads the bill beside the script,
// which may change it meanwhile, and knows nothing of what the fallback took.
func (s *Store) Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error) {
	tag, state := s.backend.locate(h)
	server, err := s.serverOf(ctx, tag)
	if err != nil {
		return b, 0, fmt.Errorf("redis: %w", err)
	}
	if clock, err = s.clockOf(ctx, server); err != nil {
		return b, 0, s.explain(tag, err)
	}
	key := string(bucket.AppendBill(nil, []byte(state), id))
	values, err := server.MGet(ctx, key).Result() // the script's user need not have GET
	if err != nil {
		return b, 0, s.explain(tag, err)
	}
	value, isThere := values[0].(string)
	if !isThere {
		return b, clock, nil
	}
	if b, err = readBill(value); err != nil {
		return b, clock, fmt.Errorf("redis: the key %q: %w", key, err)
	}
	if !b.IsKnown(clock) {
		b = bucket.Bill{}
	}
	return b, clock, nil
}

// readBill reads a bill as the script writes it.
func readBill(value string) (b bucket.Bill, err error) {
	const head, portion = 3 * 8, 2 * 8
	n := (len(value) - head) / portion
	if n < 0 || n > bucket.MaxPortions || len(value) != head+n*portion {
		return b, fmt.Errorf("found %d bytes; a bill has %d, and %d for each of at most %d portions", len(value), head, portion, bucket.MaxPortions)
	}
	b.Portions = make([]bucket.Portion, n)
	fields := []*int64{&b.Until, &b.Takes, &b.Pace}
	for i := range b.Portions {
		fields = append(fields, &b.Portions[i].At, &b.Portions[i].Cost)
	}
	for i, to := range fields {
		n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[8*i:])))
		if !(n >= 0 && n <= 1<<53) || n != math.Trunc(n) {
			return bucket.Bill{}, fmt.Errorf("found the number %v; a bill has whole ones from 0 to 2^53", n)
		}
		*to = int64(n)
	}
	return b, nil
}

// clockOf returns the clock of a server, in microseconds since the Unix epoch.
func (s *Store) clockOf(ctx context.Context, server redis.Cmdable) (int64, error) {
	if s.clock != nil {
		return s.clock(), nil
	}
	t, err := server.Time(ctx).Result()
	return t.UnixMicro(), err
}

// serverOf returns the server that has the keys of a tag.
func (s *Store) serverOf(ctx context.Context, tag int) (redis.UniversalClient, error) {
	cluster := s.redis.Cluster()
	if cluster == nil {
		return s.redis, nil
	}
	return cluster.MasterForKey(ctx, s.backend.tags[tag])
}

// explain returns the error of a command to the node of a tag in words for operators.
func (s *Store) explain(tag int, err error) error {
	return asRefusal(s.redis.Explain(s.backend.pipe.AddressOf(tag), err))
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
