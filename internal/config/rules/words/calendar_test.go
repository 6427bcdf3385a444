package words_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
)

func TestDescribeSaysACalendarInWords(t *testing.T) {
	now := time.Date(2026, time.November, 14, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		unit         bucket.CalendarUnit
		starts, zone string
		want         string
	}{
		{bucket.CalendarMonth, "", "Europe/Berlin", "100,000 requests a calendar month in Europe/Berlin, next reset 1 December 00:00 CET"},
		{bucket.CalendarMonth, "15", "Europe/Berlin", "100,000 requests a calendar month from day 15 in Europe/Berlin, next reset 15 November 00:00 CET"},
		{bucket.CalendarMonth, "31 06:00", "UTC", "100,000 requests a calendar month from day 31 06:00 in UTC, next reset 30 November 06:00 UTC"},
		{bucket.CalendarHour, ":15", "Asia/Kathmandu", "100,000 requests a calendar hour from :15 in Asia/Kathmandu, next reset 14 November 18:15 +0545"},
		{bucket.CalendarDay, "06:00", "America/New_York", "100,000 requests a calendar day from 06:00 in America/New_York, next reset 15 November 06:00 EST"},
		{bucket.CalendarWeek, "sunday 06:00", "UTC", "100,000 requests a calendar week from Sunday 06:00 in UTC, next reset 15 November 06:00 UTC"},
		{bucket.CalendarQuarter, "02-29", "UTC", "100,000 requests a calendar quarter from 29 February in UTC, next reset 29 November 00:00 UTC"},
		{bucket.CalendarYear, "04-06", "Europe/London", "100,000 requests a calendar year from 6 April in Europe/London, next reset 6 April 2027 00:00 BST"},
	} {
		t.Run(c.want, func(t *testing.T) {
			z, err := zone.Load(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			s, _ := bucket.ParseStarts(c.starts)
			l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100_000, Calendar: bucket.Calendar{Unit: c.unit, Starts: s, Zone: z}})
			if got := words.Numbers(l) + words.NextReset(l, now); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := words.NextReset(buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Hour}), now); got != "" {
		t.Errorf("a limit with a period has %q", got)
	}
}
