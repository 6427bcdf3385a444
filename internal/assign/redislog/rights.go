package redislog

import (
	"context"
	"strings"
	"time"
)

// tellRights names the rights that the Redis user lacks. It does so once an hour: without
// assignments nobody misses them.
func (s *Store) tellRights(ctx context.Context) {
	c := &call{tag: s.tags[0], keys: []string{s.tags[0].assigned}}
	s.run(ctx, rightsScript, []*call{c})
	missing, err := c.cmd.StringSlice()
	if err != nil || len(missing) == 0 {
		return // whatever fails says so itself
	}
	if _, due := s.rightsLines.Due(time.Now(), time.Hour); due {
		s.o.Log.Warn("redis: the user lacks rights for assignments: plans, blocks and numbers of customers do not hold at this daemon, or cannot be changed; give it the missing ones",
			"missing", "+"+strings.Join(missing, " +"), "keys", s.redis.Prefix()+"{*")
	}
}
