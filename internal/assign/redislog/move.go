package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// A key says over how many hash tags the assignments are spread, and over how many they
// were before. When redis.hash_tags has changed, which all daemons must agree on, the
// first daemon moves the assignments, and the others wait. The records of changes stay
// where they are and are read from there.

const (
	// moveLives is how long a daemon that moves them may be silent.
	moveLives = 30 * time.Second
	// formerNumbers bounds how many former numbers are remembered.
	formerNumbers = 4
)

var errMoving = errors.New("another daemon moves the assignments to its redis.hash_tags")

var errNotIn = errors.New("the assignments are spread over another redis.hash_tags, and this daemon is not in the register of those that may move them")

// numbers returns the numbers of hash tags, the one in force first; none if nothing was
// ever assigned.
func (s *Store) numbers(ctx context.Context) (numbers []int, _ error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	text, err := s.redis.Get(ctx, s.key("tags")).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > 16384 {
			return nil, fmt.Errorf("the key %s holds %.100q, where numbers of hash tags are expected", s.key("tags"), text)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// move moves the assignments to this daemon's number of hash tags if they are spread over
// a different one.
func (s *Store) move(ctx context.Context) error {
	numbers, err := s.numbers(ctx)
	if err != nil {
		return err
	}
	if len(numbers) > 0 && numbers[0] == s.o.HashTags {
		return nil
	}
	if len(numbers) == 0 {
		return s.claimNumber(ctx)
	}
	if err := s.mayMove(ctx); err != nil {
		return err
	}
	if mine, err := s.claim(ctx, "mover", moveLives); err != nil || !mine {
		return errors.Join(err, errMoving)
	}
	s.o.Log.Info("redis: redis.hash_tags has changed; the assignments are moved", "from", numbers[0], "to", s.o.HashTags)
	for _, name := range s.o.Tags(numbers[0]) {
		if err := s.moveFrom(ctx, s.newTag(name)); err != nil {
			return err
		}
	}
	former := []string{strconv.Itoa(s.o.HashTags)}
	for _, n := range numbers {
		if text := strconv.Itoa(n); !slices.Contains(former, text) && len(former) < formerNumbers {
			former = append(former, text)
		}
	}
	return s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.Set(ctx, s.key("tags"), strings.Join(former, " "), 0)
		pipe.Del(ctx, s.key("mover"))
	})
}

// mayMove returns why this daemon may not move assignments, or nil. The daemons in the
// register agree on redis.hash_tags; a daemon that they keep out would take their
// assignments away.
func (s *Store) mayMove(ctx context.Context) error {
	if s.o.Awaited == nil {
		return nil
	}
	in, err := s.o.Awaited(ctx)
	if err == nil && !slices.Contains(in.IDs, s.o.ID) {
		err = errNotIn
	}
	return err
}

// claimNumber records this daemon's number of hash tags unless there is one.
func (s *Store) claimNumber(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	err := s.redis.SetArgs(ctx, s.key("tags"), s.o.HashTags, redis.SetArgs{Mode: "NX"}).Err()
	if errors.Is(err, redis.Nil) {
		return nil // there is one
	}
	return err
}

// claim reports whether this daemon is the one to do a task, for as long as lives unless
// it renews that.
func (s *Store) claim(ctx context.Context, work string, lives time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	err := s.redis.SetArgs(ctx, s.key(work), s.o.ID, redis.SetArgs{Mode: "NX", TTL: lives}).Err()
	if err == nil || !errors.Is(err, redis.Nil) {
		return err == nil, err
	}
	holder, err := s.redis.Get(ctx, s.key(work)).Result()
	if errors.Is(err, redis.Nil) {
		err = nil // it has just ended
	}
	return holder == s.o.ID, err
}

// unclaim ends a claim of this daemon.
func (s *Store) unclaim(ctx context.Context, work string) error {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	return s.redis.Del(ctx, s.key(work)).Err()
}

// moveFrom moves the assignments of a former tag. Each is written to its new tag before
// it is removed from the old one, so a daemon that dies in between loses none.
func (s *Store) moveFrom(ctx context.Context, old *tag) error {
	for cursor := uint64(0); ; {
		page, next, err := s.page(ctx, old, cursor)
		if err != nil {
			return err
		}
		var moved []string
		err = s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
			pipe.PExpire(ctx, s.key("mover"), moveLives)
			for i := 0; i+1 < len(page); i += 2 {
				text, value := page[i], page[i+1]
				t := s.tagOf(text)
				if t.name == old.name || text == epochField {
					continue
				}
				if _, err := assign.Decode([]byte(value)); err != nil {
					s.logForeign(old.assigned, err)
					continue
				}
				pipe.HSetNX(ctx, t.assigned, text, value)
				moved = append(moved, text)
			}
		})
		if err == nil && len(moved) > 0 {
			err = s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) { pipe.HDel(ctx, old.assigned, moved...) })
		}
		if err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// tagsOfRecords returns the tags whose streams have records, including former ones.
func (s *Store) tagsOfRecords(ctx context.Context) []*tag {
	tags := slices.Clone(s.tags)
	numbers, _ := s.numbers(ctx) // without an answer there are no records either
	for _, n := range numbers {
		if n == s.o.HashTags {
			continue
		}
		for _, name := range s.o.Tags(n) {
			if !slices.ContainsFunc(tags, func(t *tag) bool { return t.name == name }) {
				tags = append(tags, s.newTag(name))
			}
		}
	}
	return tags
}
