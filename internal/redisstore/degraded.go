package redisstore

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
)

// TakeDegraded decides a group like Take when Redis does not answer, or like Reserve if
// the reservation has an ID, without asking Redis: for a caller with a cause to doubt the
// limits of the hits.
func (s *Store) TakeDegraded(ctx context.Context, reserved bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	local := s.backend.fallback
	if local == nil {
		return cause
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := local.Reserve(ctx, reserved, hits, decisions, cause)
	if ctx.Err() == nil {
		var degraded fallback.Degraded
		local.Add(&degraded, hits, fallback.Unsure)
		local.Count(&degraded)
	}
	return err
}
