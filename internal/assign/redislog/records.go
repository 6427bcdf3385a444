package redislog

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// maxScanned bounds the records looked at for one page, which may then have fewer than it
// could.
const maxScanned = 20_000

// Records implements assign.Store. The token of a page is the ID of its last record. If
// few of many are selected, a page may have fewer records than allowed without being the
// last.
func (s *Store) Records(ctx context.Context, q assign.RecordQuery) (found []assign.Record, next string, _ error) {
	before := "+"
	if q.After != "" {
		if _, err := parseID(q.After); err != nil {
			return nil, "", assign.ErrPageToken
		}
		before = "(" + q.After
	}
	for scanned := 0; ; {
		page, err := s.redis.XRevRangeN(ctx, s.changes, before, "-", pageOfRecords).Result()
		if err != nil {
			s.redis.ReloadAfter(ctx, err)
			return nil, "", wrap(err)
		}
		for _, m := range page {
			if len(found) == q.Max || scanned == maxScanned {
				return found, before[1:], nil
			}
			scanned++
			before = "(" + m.ID
			if e, err := decodeEntry(m); err == nil && q.Selects(&e.record) {
				found = append(found, e.record)
			}
		}
		if len(page) < pageOfRecords {
			return found, "", nil
		}
	}
}
