package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

const (
	// pageOfAssignments is roughly how many assignments are read at once.
	pageOfAssignments = 500
	// loadsAtOnce is how many tags are loaded at the same time.
	loadsAtOnce = 4
	// pageTries is how often a page is requested.
	pageTries = 3
	// maxPutBacks is how many records are read to find one of a change.
	maxPutBacks = 10
)

// load loads those tags that are not loaded.
func (s *Store) load(ctx context.Context, tags []*tag, n *news) error {
	var mu sync.Mutex // guards n and errs
	var errs []error
	var loads sync.WaitGroup
	turns := make(chan struct{}, loadsAtOnce)
	for _, t := range tags {
		if t.isLoaded {
			continue
		}
		turns <- struct{}{}
		loads.Go(func() {
			defer func() { <-turns }()
			var own news
			err := s.loadTag(ctx, t, &own)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			n.changed = append(n.changed, t)
			n.keys = append(n.keys, own.keys...)
			if n.reloaded == nil {
				n.reloaded = make(map[*tag]map[string]struct{})
			}
			if own.reloaded != nil {
				n.reloaded[t] = own.reloaded[t]
			}
		})
	}
	loads.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d hash tags could not be loaded: %w", len(errs), errs[0])
	}
	for _, t := range s.tags {
		if !t.isLoaded || t.isFromSnapshot {
			return nil
		}
	}
	lacking := s.leftOut() // whoever waits for the load asks for it next
	s.lacking.Store(&lacking)
	s.loaded.Store(true)
	return nil
}

// loadTag puts all assignments of a tag into the table. Concurrent changes are in its
// stream, from which the tag continues: for a moment there may be a change that was
// already replaced.
func (s *Store) loadTag(ctx context.Context, t *tag, n *news) error {
	newest, has, err := s.newestChange(ctx, t)
	if err != nil {
		return err
	}
	epoch, err := s.epochOf(ctx, t)
	if err != nil {
		return err
	}
	if epoch == "" && t.epoch != "" {
		t.isLoaded, t.isLacking = true, true // with what the table has: Redis has lost it
		return nil
	}
	if epoch == "" {
		if othersHave, err := s.othersHave(ctx, t); err != nil || othersHave {
			return cmp.Or(err, errLost)
		}
	}
	if t.at != (streamID{}) || s.loaded.Load() {
		if err := s.tellMissed(ctx, t, newest, n); err != nil {
			return err
		}
	}
	var there map[string]struct{}
	if t.isBegun {
		there = make(map[string]struct{})
		n.reloaded = map[*tag]map[string]struct{}{t: there}
	}
	t.isBegun = true
	t.leftOut = leftOut{}
	hasAny := false
	for cursor := uint64(0); ; {
		page, next, err := s.page(ctx, t, cursor)
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if page[i] == epochField || page[i] == restorerField {
				continue
			}
			hasAny = true
			a, err := s.decodeField(t, page[i], page[i+1])
			if err != nil {
				s.logForeign(t.assigned, err)
				continue
			}
			if s.admit(t, a) && there != nil {
				there[page[i]] = struct{}{}
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	// Redis may have lost it meanwhile, including what was not read yet.
	after, err := s.epochOf(ctx, t)
	if err != nil || after != epoch && epoch != "" {
		return cmp.Or(err, errLost)
	}
	if after == "" && hasAny { // from an earlier version
		if err := s.beginEpoch(ctx, t, newest); err != nil {
			return err
		}
		after = newest.String()
	}
	t.setEpoch(after)
	t.at, t.has, t.isLoaded, t.isFromSnapshot = newest, has, true, false
	t.recent = []streamID{newest}
	t.emptySince = time.Time{}
	return nil
}

// othersHave reports whether another daemon has a tag of which Redis has nothing, because
// it has lost it, so that the daemon is putting it back or is about to. A daemon of a
// version without epochs does not put back, and one that is putting back may die, so this
// returns true only for a while, or as long as there is more and more.
func (s *Store) othersHave(ctx context.Context, t *tag) (bool, error) {
	var assigned, seen *redis.IntCmd
	var restorer *redis.SliceCmd
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		assigned, seen, restorer = pipe.HLen(ctx, t.assigned), pipe.HLen(ctx, t.seen), pipe.HMGet(ctx, t.assigned, restorerField)
	})
	if err != nil {
		return false, err
	}
	isPutBack := restorer.Val()[0] != nil
	if t.emptySince.IsZero() || isPutBack && assigned.Val() != t.emptyLen {
		t.emptySince, t.emptyLen = time.Now(), assigned.Val()
	}
	if time.Since(t.emptySince) > awaitOthers || assigned.Val() > 0 || seen.Val() == 0 {
		return isPutBack && time.Since(t.emptySince) <= awaitOthers, nil
	}
	awaited, err := s.awaited(ctx, time.Now())
	if err != nil {
		return false, err
	}
	others := slices.DeleteFunc(slices.Clone(awaited.IDs), func(id string) bool { return id == s.o.ID })
	if len(others) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	ids, err := s.redis.HMGet(ctx, t.seen, others...).Result()
	return slices.ContainsFunc(ids, func(id any) bool { return id != nil }), err
}

// setEpoch notes that Redis has the assignments of a tag.
func (t *tag) setEpoch(epoch string) {
	t.epoch, t.isLost, t.isLacking = epoch, false, false
}

// noteKnown tells changes how far the table is.
func (t *tag) noteKnown() {
	if t.epoch == "" {
		t.known.Store(nil)
		return
	}
	at := t.at
	t.known.Store(&at)
}

// epochOf returns the epoch of a tag, or "".
func (s *Store) epochOf(ctx context.Context, t *tag) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	epoch, err := s.redis.HGet(ctx, t.assigned, epochField).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return epoch, err
}

// beginEpoch gives a tag an epoch if it has none.
func (s *Store) beginEpoch(ctx context.Context, t *tag, id streamID) error {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	return s.redis.HSetNX(ctx, t.assigned, epochField, id.String()).Err()
}

// decodeField reads a field of the hash of a tag.
func (s *Store) decodeField(t *tag, text, value string) (*assign.Assignment, error) {
	a, err := assign.Decode([]byte(value))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	if _, err := parseID(a.ETag); err != nil {
		return nil, fmt.Errorf("%q: the ETag %w", text, err)
	}
	if a.Text() != text || s.tagOf(text) != t {
		return nil, fmt.Errorf("%q: the assignment is of %q, or of another hash tag", text, a.Text())
	}
	return a, nil
}

// page reads some of a tag's assignments.
func (s *Store) page(ctx context.Context, t *tag, cursor uint64) (page []string, next uint64, err error) {
	for range pageTries {
		page, next, err = s.pageOnce(ctx, t.assigned, cursor)
		if err == nil || ctx.Err() != nil {
			return page, next, err
		}
	}
	return nil, 0, err
}

// pageOnce reads some fields of a hash with their values.
func (s *Store) pageOnce(ctx context.Context, key string, cursor uint64) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	return s.redis.HScan(ctx, key, cursor, "", pageOfAssignments).Result()
}

// newestOf returns the ID of the newest change of a tag.
func (s *Store) newestOf(ctx context.Context, t *tag) (streamID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	changes, err := s.redis.XRevRangeN(ctx, t.changes, "+", "-", 1).Result()
	if err != nil || len(changes) == 0 {
		return streamID{}, err
	}
	return parseID(changes[0].ID)
}

// newestChange returns the IDs of a tag's newest record, and of its newest change.
func (s *Store) newestChange(ctx context.Context, t *tag) (newest, change streamID, _ error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	records, err := s.redis.XRevRangeN(ctx, t.changes, "+", "-", maxPutBacks).Result()
	if err != nil || len(records) == 0 {
		return newest, change, err
	}
	change = streamID{ms: math.MaxUint64} // of what is not read
	for _, m := range slices.Backward(records) {
		e, err := decodeEntry(t, m)
		if e.id == (streamID{}) {
			return newest, change, err
		}
		newest = e.id
		if err == nil && e.record.Kind == assign.Restored && (e.previous == e.through || change.compare(e.through) <= 0) {
			change = e.through
		} else {
			change = e.id // a put-back counts as one too if it is next to newer changes
		}
	}
	return newest, change, nil
}

// tellMissed tells the watchers of the unseen changes up to newest, as far as they still
// exist, and collects the keys of states that were reset.
func (s *Store) tellMissed(ctx context.Context, t *tag, newest streamID, n *news) error {
	for at := t.at; at.compare(newest) < 0; {
		changes, err := s.changesAfter(ctx, t, at)
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			return nil
		}
		for _, m := range changes {
			e, err := decodeEntry(t, m)
			if e.id.compare(newest) > 0 || e.id.compare(at) <= 0 {
				return nil
			}
			at = e.id
			if err == nil {
				n.keys = append(n.keys, e.keys...)
				if !e.isSame {
					s.watchers.Tell(e.record)
				}
			}
		}
	}
	return nil
}

func (s *Store) changesAfter(ctx context.Context, t *tag, at streamID) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	return s.redis.XRangeN(ctx, t.changes, at.next().String(), "+", pageOfChanges).Result()
}

// next is the ID right after i.
func (i streamID) next() streamID {
	if i.seq++; i.seq == 0 {
		i.ms++
	}
	return i
}

// removeLost removes from the table what reloaded tags no longer have. It scans the whole
// table once.
func (s *Store) removeLost(n *news) {
	if len(n.reloaded) == 0 {
		return
	}
	for a := range s.table.All() {
		text := a.Text()
		there, isReloaded := n.reloaded[s.tagOf(text)]
		if !isReloaded {
			continue
		}
		if _, ok := there[text]; !ok {
			s.table.Delete(a.Subject, "")
		}
	}
}
