package redislog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Reset implements assign.Store.
func (s *Store) Reset(ctx context.Context, r assign.Reset) (states int, _ error) {
	if err := r.Record.Subject.Check(); err != nil {
		return 0, err
	}
	if n := len(r.Keys); n == 0 || n > assign.MaxReset {
		return 0, fmt.Errorf("%d keys, where 1 to %d are allowed", n, assign.MaxReset)
	}
	byTag := make(map[string][]string)
	for _, key := range r.Keys {
		tag := hashTagOf(key)
		byTag[tag] = append(byTag[tag], key)
	}
	if r.OnlyCounted {
		counted := int64(0)
		for _, keys := range byTag {
			n, err := s.redis.Exists(ctx, keys...).Result()
			if err != nil {
				return 0, fmt.Errorf("%w: %w", assign.ErrNothingChanged, wrap(err))
			}
			counted += n
		}
		if counted == 0 {
			return 0, nil
		}
	}
	if err := s.addRecord(ctx, r.Record, r.Keys); err != nil {
		return 0, err
	}
	defer s.forget(r.Keys) // also what was denied since the record was followed
	for _, tag := range slices.Sorted(maps.Keys(byTag)) {
		keys := byTag[tag]
		for _, key := range byTag[tag] {
			keys = append(keys, string(bucket.AppendReset(nil, []byte(key))))
		}
		n, err := s.redis.Run(ctx, resetScript, keys, bucket.MaxReservation.Milliseconds()).Int()
		if err != nil {
			failed := r.Record
			failed.Kind = assign.ResetFailed
			return states, fmt.Errorf("some states may not be forgotten: %w", errors.Join(wrap(err), s.addRecord(context.WithoutCancel(ctx), failed, nil)))
		}
		states += n
	}
	return states, nil
}

// addRecord adds a record that changes no assignment, and follows it. keys are the states
// that it is about.
func (s *Store) addRecord(ctx context.Context, r assign.Record, keys []string) error {
	text, _ := json.Marshal(keys) // cannot fail
	_, isResent, err := s.send(ctx, []any{"", "", text, assign.EncodeRecord(&r)})
	if err != nil {
		return cmp.Or(s.failure(err, isResent).Err, wrap(err))
	}
	_ = s.refreshNow(ctx) // or it is followed within a second
	return nil
}

// hashTagOf returns what is between the first braces of a key.
func hashTagOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}
