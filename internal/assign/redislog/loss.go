package redislog

import (
	"context"
	"maps"
	"slices"
	"sort"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// maxViews bounds how many views were put back one after the other.
const maxViews = 100

// maxRecent is how many changes are remembered for what Redis may lose, at least once
// there are more.
const maxRecent = 10_000

// recentChange is a change that was followed.
type recentChange struct {
	id   changeID
	text string // of the subject
}

// noteRecent remembers a change that was followed. s.mu is held.
func (s *Store) noteRecent(e *entry) {
	if len(s.recent) == 2*maxRecent {
		s.recent = append(s.recent[:0], s.recent[maxRecent:]...)
	}
	s.recent = append(s.recent, recentChange{e.id, e.record.Text()})
}

// findLost returns the subjects that this daemon knows a change of that Redis has lost, by
// their texts, with the ETag of each; empty if the assignment was removed. All changes up
// to one that Redis has are in Redis too, since each record goes on from another. s.mu is
// held.
func (s *Store) findLost(ctx context.Context) (map[string]string, error) {
	oldest, err := s.redis.XRangeN(ctx, s.changes, "-", "+", maxViews).Result()
	if err != nil || len(oldest) == 0 {
		return nil, err
	}
	first, _ := decodeEntry(oldest[0])
	for _, m := range oldest[1:] { // a newer view may have been put back in place of an older one
		e, err := decodeEntry(m)
		if err != nil || e.record.Kind != assign.Restored {
			break
		}
		first = e
	}
	var ids []changeID
	for _, r := range s.recent {
		ids = append(ids, r.id)
	}
	for a := range s.table.All() {
		ids = append(ids, versionOf(a))
	}
	slices.SortFunc(ids, changeID.compare)
	n := sort.Search(len(ids), func(i int) bool {
		if ids[i].compare(first.previous) <= 0 || err != nil {
			return false // it was removed for its age, or put back
		}
		id := ids[i].String()
		var records []redis.XMessage
		records, err = s.redis.XRangeN(ctx, s.changes, id, id, 1).Result()
		return len(records) == 0
	})
	if err != nil || n == len(ids) {
		return nil, err
	}
	lost := make(map[string]string)
	for _, r := range s.recent {
		if r.id.compare(ids[n]) >= 0 {
			lost[r.text] = ""
		}
	}
	for a := range s.table.All() {
		if versionOf(a).compare(ids[n]) >= 0 {
			lost[a.Text()] = a.ETag
		}
	}
	return lost, nil
}

// reportLost logs and counts what is missing, unless Redis has the same all the same: found
// has the ETags of what it has. s.mu is held.
func (s *Store) reportLost(found map[string]string) {
	lost := s.missing
	s.missing = nil
	maps.DeleteFunc(lost, func(text, etag string) bool { return found[text] == etag })
	if len(lost) == 0 {
		return
	}
	const maxNamed = 100
	s.lost.Add(int64(len(lost)))
	subjects := slices.Sorted(maps.Keys(lost))
	s.o.Log.Error("redis: Redis has lost changes of assignments that this daemon had in force; make them again",
		"changes", len(lost), "subjects", subjects[:min(len(subjects), maxNamed)])
}
