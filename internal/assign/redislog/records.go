package redislog

import (
	"cmp"
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// recordID returns the ID of a record: that of its change and its tag, since changes of
// different tags may have the same ID.
func recordID(t *tag, id streamID) string { return id.String() + "@" + t.name }

// place is the position of a record among all.
type place struct {
	id  streamID
	tag string
}

func (p place) compare(o place) int { return cmp.Or(p.id.compare(o.id), cmp.Compare(p.tag, o.tag)) }

// end is after all records.
var end = place{streamID{^uint64(0), ^uint64(0)}, "\xff"}

func parsePlace(token string) (place, error) {
	if token == "" {
		return end, nil
	}
	text, tag, ok := strings.Cut(token, "@")
	id, err := parseID(text)
	if !ok || err != nil {
		return place{}, assign.ErrPageToken
	}
	return place{id, tag}, nil
}

// maxScanned bounds the records looked at for one page, which may then have fewer than it
// could.
const maxScanned = 20_000

// reader reads the records of a tag, newest first.
type reader struct {
	tag    *tag
	before place // position before which all further records are
	next   []redis.XMessage
	isDone bool // there are no more than next
}

// Records implements assign.Store. If few of many are selected, a page may have fewer
// records than allowed without being the last.
func (s *Store) Records(ctx context.Context, q assign.RecordQuery) (found []assign.Record, next string, _ error) {
	before, err := parsePlace(q.After)
	if err != nil {
		return nil, "", err
	}
	var readers []*reader
	for _, t := range s.tagsOfRecords(ctx) {
		readers = append(readers, &reader{tag: t, before: before})
	}
	size := int64(max(16, 2*q.Max/len(readers)))
	if err := s.fill(ctx, readers, size); err != nil {
		return nil, "", err
	}
	for scanned := 0; ; scanned++ {
		newest, err := s.newest(ctx, readers, size)
		if err != nil || newest == nil {
			return found, "", err
		}
		if len(found) == q.Max || scanned == maxScanned {
			return found, recordID(&tag{name: before.tag}, before.id), nil
		}
		m := newest.next[0]
		newest.next = newest.next[1:]
		e, err := decodeEntry(newest.tag, m)
		before = place{e.id, newest.tag.name}
		newest.before = before
		if err == nil && !e.isSame && q.Chooses(&e.record) {
			found = append(found, e.record)
		}
	}
}

// newest returns the reader with the newest record, or nil if there is none.
func (s *Store) newest(ctx context.Context, readers []*reader, size int64) (*reader, error) {
	var newest *reader
	var at place
	for _, r := range readers {
		if len(r.next) == 0 && !r.isDone {
			if err := s.fill(ctx, []*reader{r}, size); err != nil {
				return nil, err
			}
		}
		if len(r.next) == 0 {
			continue
		}
		id, _ := parseID(r.next[0].ID)
		if p := (place{id, r.tag.name}); newest == nil || p.compare(at) > 0 {
			newest, at = r, p
		}
	}
	return newest, nil
}

// fill reads the next records of readers.
func (s *Store) fill(ctx context.Context, readers []*reader, size int64) error {
	replies := make([]*redis.XMessageSliceCmd, len(readers))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, r := range readers {
			// The record at that position is read too, and skipped.
			replies[i] = pipe.XRevRangeN(ctx, r.tag.changes, r.before.id.String(), "-", size+1)
		}
	})
	if err != nil {
		s.redis.ReloadAfter(ctx, err)
		return wrap(err)
	}
	for i, r := range readers {
		r.next = replies[i].Val()
		r.isDone = len(r.next) <= int(size)
		for len(r.next) > 0 {
			id, err := parseID(r.next[0].ID)
			if err == nil && (place{id, r.tag.name}).compare(r.before) < 0 {
				break
			}
			r.next = r.next[1:]
		}
	}
	return nil
}
