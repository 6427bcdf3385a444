package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// above is more than all moments: the score of the moment of the last write begins here,
// see script/lua/state.lua.
const above = 1 << 52

// Holders returns who holds slots of the hit's state: the first n of them, or of a hit that
// names a holder this one alone. It reads the set beside the script, which may change it
// meanwhile, and changes nothing.
func (s *Store) Holders(ctx context.Context, h *bucket.Hit, n int) (bucket.Held, error) {
	tag, key := s.backend.locate(h)
	server, err := s.serverOf(ctx, tag)
	if err != nil {
		return bucket.Held{}, fmt.Errorf("redis: %w", err)
	}
	clock, err := s.clockOf(ctx, server)
	if err != nil {
		return bucket.Held{}, s.explain(tag, err)
	}
	newest, err := server.ZRevRangeWithScores(ctx, key, 0, 0).Result()
	if err != nil || len(newest) == 0 {
		return bucket.Held{}, s.explain(tag, err)
	}
	now := clock
	if last := int64(newest[0].Score) - above; last >= now {
		now = last + 1
	}
	after := strconv.FormatInt(now+1, 10)
	until := fmt.Sprintf("(%d", int64(above))
	total, err := server.ZCount(ctx, key, after, until).Result()
	if err != nil {
		return bucket.Held{}, s.explain(tag, err)
	}
	held := bucket.Held{Total: total}
	var first []redis.Z
	if h.Holder == "" {
		first, err = server.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: after, Max: until, Count: int64(n)}).Result()
	} else {
		var end float64
		if end, err = server.ZScore(ctx, key, h.Holder).Result(); err == nil && int64(end) > now && int64(end) < above {
			first = []redis.Z{{Score: end, Member: h.Holder}}
		}
		if errors.Is(err, redis.Nil) {
			err = nil
		}
	}
	if err != nil {
		return bucket.Held{}, s.explain(tag, err)
	}
	for _, z := range first {
		holder, _ := z.Member.(string)
		held.First = append(held.First, bucket.Holding{Holder: holder, Left: time.Duration(int64(z.Score)-clock) * time.Microsecond})
	}
	return held, nil
}
