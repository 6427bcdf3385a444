package script

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// Of a batch with the wrong windows, only the requests that need others are undecided, and
// nothing of them is charged.
func TestOnlyRequestsByCalendarAreAskedAgain(t *testing.T) {
	now := time.Date(2030, 1, 15, 12, 0, 0, 0, time.UTC).UnixMicro()
	s := newRig(t, func() int64 { return now })
	s.ownClock = func() int64 { return now - 86400e6*90 }
	daily := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour})
	calendar := bucket.Calendar{Unit: bucket.CalendarMonth, Zone: time.UTC}
	monthly := buckettest.NewLimit(t, bucket.Spec{Name: "month", Algorithm: bucket.FixedWindow, Requests: 10, Calendar: calendar})
	none := buckettest.NewLimit(t, bucket.Spec{Name: "none", Algorithm: bucket.FixedWindow, Requests: 0, Calendar: calendar})
	used := buckettest.NewLimit(t, bucket.Spec{Name: "used", Algorithm: bucket.FixedWindow, Requests: 10, Calendar: calendar, Postpaid: bucket.PostpaidAlways})
	day, month := testHit(s, daily, "a", 1), testHit(s, monthly, "a", 1)

	requests := []struct {
		name     string
		mode     Mode
		hits     []bucket.Hit
		isByDate bool
	}{
		{"a day", Take, []bucket.Hit{day}, false},
		{"a month", Take, []bucket.Hit{month}, true},
		{"the same month", Take, []bucket.Hit{month}, true},
		{"a day and a month", Take, []bucket.Hit{day, month}, true},
		{"what is used of a month", Take, []bucket.Hit{testHit(s, used, "a", 20), day}, true},
		{"a month of nothing", Take, []bucket.Hit{testHit(s, none, "a", 1)}, true},
		{"a check of a month", Check, []bucket.Hit{month}, true},
		{"a month to give back", GiveBack, []bucket.Hit{month}, true},
		{"another day", Take, []bucket.Hit{day}, false},
	}
	all := make([]*Group, len(requests))
	for i, r := range requests {
		all[i] = groupOn(s, r.mode, r.hits...)
		for j := range all[i].Decisions {
			all[i].Decisions[j].At = now
		}
	}
	decideBy(t, s, NewCommand(), all)
	for i, r := range requests {
		switch got := all[i]; {
		case r.isByDate && (got.Err != ErrElsewhen || got.Elsewhen != now):
			t.Errorf("%s: %v at %d, want to be asked for the windows about %d", r.name, got.Err, got.Elsewhen, now)
		case !r.isByDate && (got.Err != nil || !got.Decisions[0].Allowed()):
			t.Errorf("%s: %+v, %v", r.name, got.Decisions, got.Err)
		}
	}
	keys, err := s.redis.Exists(context.Background(), string(month.Key), string(requests[4].hits[0].Key)).Result()
	if err != nil || keys != 0 {
		t.Errorf("%d of the keys by calendar were written: %v", keys, err)
	}
	if got := all[8].Decisions[0].Remaining; got != 8 {
		t.Errorf("%d of 10 a day remain after 2", got)
	}

	// Each by itself is decided by the windows that it asked for.
	for i, r := range requests {
		if !r.isByDate {
			continue
		}
		again := all[i]
		again.Err = nil
		if decideBy(t, s, NewCommand(), []*Group{again}); again.Err != nil {
			t.Errorf("%s again: %v", r.name, again.Err)
		}
	}
	if got := all[3].Decisions[1].Remaining; got != 7 {
		t.Errorf("%d of 10 a month remain after 3", got)
	}
	if got := all[5].Decisions[0]; got.RetryAfter != bucket.Never || got.ResetAfter != time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC).Sub(time.UnixMicro(now)) {
		t.Errorf("a month of nothing: %+v", got)
	}
}
