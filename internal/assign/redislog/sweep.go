package redislog

import (
	"context"
	"slices"
)

// Sweep removes what has ended by the clock of Redis, from Redis and from the table. If
// something was left out and there is room again, the next look loads the table again.
func (s *Store) Sweep(ctx context.Context) error {
	now := s.now()
	if s.o.Clock == nil {
		time, err := s.redis.Time(ctx).Result()
		if err != nil {
			return wrap(err)
		}
		now = time.UnixMicro()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ended := range slices.Chunk(slices.Collect(s.table.Ended(now)), pageOfAssignments) {
		var args []any
		for _, a := range ended {
			args = append(args, a.Text(), a.ETag)
		}
		if err := s.redis.Run(ctx, sweepScript, []string{s.assigned}, args...).Err(); err != nil {
			return wrap(err)
		}
		for _, a := range ended {
			s.table.Delete(a.Subject, a.ETag) // a later version stays
		}
	}
	s.isBegun = s.isBegun && (!s.isFull() || s.table.Len() >= s.o.MaxAssignments)
	return nil
}
