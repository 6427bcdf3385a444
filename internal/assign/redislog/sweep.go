package redislog

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// sweepForever removes what has ended, every minute or so.
func (s *Store) sweepForever(ctx context.Context) {
	for pause(ctx, sweepEvery/2+rand.N(sweepEvery)) {
		if err := s.Sweep(ctx); err != nil {
			s.logFailure(ctx, err)
		}
	}
}

// Sweep removes what has ended by the clock of Redis, from Redis and from the table.
func (s *Store) Sweep(ctx context.Context) error {
	now := s.now()
	ended := make(map[*tag][]*assign.Assignment)
	var errs []error
	for a := range s.table.Ended(now) {
		t := s.tagOf(a.Text())
		ended[t] = append(ended[t], a)
		if len(ended[t]) == maxPerCall {
			errs = append(errs, s.sweep(ctx, t, ended[t]))
			delete(ended, t)
		}
	}
	for t, all := range ended {
		errs = append(errs, s.sweep(ctx, t, all))
	}
	return errors.Join(errs...)
}

// sweep removes assignments of one tag.
func (s *Store) sweep(ctx context.Context, t *tag, ended []*assign.Assignment) error {
	c := &call{tag: t, keys: []string{t.assigned}, args: []any{s.clock()}}
	for _, a := range ended {
		c.args = append(c.args, a.Text())
	}
	s.run(ctx, sweepScript, []*call{c})
	gone, err := c.cmd.Int64Slice()
	if err != nil {
		return wrap(err)
	}
	for i := range min(len(gone), len(ended)) {
		if gone[i] == 1 {
			// A later version stays.
			s.table.Delete(ended[i].Subject, ended[i].ETag)
		}
	}
	return nil
}
