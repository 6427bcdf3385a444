package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Of a batch with the wrong windows, only the requests that need others are undecided, and
// nothing of them is charged.
func TestOnlyRequestsByCalendarAreAskedAgain(t *testing.T) {
	now := time.Date(2030, 1, 15, 12, 0, 0, 0, time.UTC).UnixMicro()
	s := testStore(t, func() int64 { return now })
	s.ownClock = func() int64 { return now - 86400e6*90 }
	daily := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour})
	calendar := bucket.Calendar{Unit: bucket.CalendarMonth, Zone: time.UTC}
	monthly := buckettest.NewLimit(t, bucket.Spec{Name: "month", Algorithm: bucket.FixedWindow, Requests: 10, Calendar: calendar})
	none := buckettest.NewLimit(t, bucket.Spec{Name: "none", Algorithm: bucket.FixedWindow, Requests: 0, Calendar: calendar})
	used := buckettest.NewLimit(t, bucket.Spec{Name: "used", Algorithm: bucket.FixedWindow, Requests: 10, Calendar: calendar, Postpaid: bucket.PostpaidAlways})
	day, month := testHit(s, daily, "a", 1), testHit(s, monthly, "a", 1)

	requests := []struct {
		name     string
		mode     script.Mode
		hits     []bucket.Hit
		isByDate bool
	}{
		{"a day", script.Take, []bucket.Hit{day}, false},
		{"a month", script.Take, []bucket.Hit{month}, true},
		{"the same month", script.Take, []bucket.Hit{month}, true},
		{"a day and a month", script.Take, []bucket.Hit{day, month}, true},
		{"what is used of a month", script.Take, []bucket.Hit{testHit(s, used, "a", 20), day}, true},
		{"a month of nothing", script.Take, []bucket.Hit{testHit(s, none, "a", 1)}, true},
		{"a check of a month", script.Check, []bucket.Hit{month}, true},
		{"a month to give back", script.GiveBack, []bucket.Hit{month}, true},
		{"another day", script.Take, []bucket.Hit{day}, false},
	}
	all := &batch{store: s, requests: make([]*request, len(requests))}
	for i, r := range requests {
		all.requests[i] = newRequest()
		all.requests[i].Group = *testRequest(s, r.mode, r.hits...)
		for j := range all.requests[i].Decisions {
			all.requests[i].Decisions[j].At = now
		}
	}
	all.send(context.Background())
	for i, r := range requests {
		switch got := all.requests[i]; {
		case r.isByDate && (got.Err != script.ErrElsewhen || got.Elsewhen != now):
			t.Errorf("%s: %v at %d, want to be asked for the windows about %d", r.name, got.Err, got.Elsewhen, now)
		case !r.isByDate && (got.Err != nil || !got.Decisions[0].Allowed()):
			t.Errorf("%s: %+v, %v", r.name, got.Decisions, got.Err)
		}
	}
	keys, err := s.redis.Exists(context.Background(), string(month.Key), string(requests[4].hits[0].Key)).Result()
	if err != nil || keys != 0 {
		t.Errorf("%d of the keys by calendar were written: %v", keys, err)
	}
	if got := all.requests[8].Decisions[0].Remaining; got != 8 {
		t.Errorf("%d of 10 a day remain after 2", got)
	}

	// Each by itself is decided by the windows that it asked for.
	for i, r := range requests {
		if !r.isByDate {
			continue
		}
		again := all.requests[i]
		again.Err = nil
		if s.alone(again).send(context.Background()); again.Err != nil {
			t.Errorf("%s again: %v", r.name, again.Err)
		}
	}
	if got := all.requests[3].Decisions[1].Remaining; got != 7 {
		t.Errorf("%d of 10 a month remain after 3", got)
	}
	if got := all.requests[5].Decisions[0]; got.RetryAfter != bucket.Never || got.ResetAfter != time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC).Sub(time.UnixMicro(now)) {
		t.Errorf("a month of nothing: %+v", got)
	}
}
