package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

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
