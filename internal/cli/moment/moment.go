// Package moment reads and writes times and days as people write them, in files and on a
// command line. It imports the limits files' periods, and timespan.
package moment

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

const (
	allowedMoment = `a moment such as 2026-12-31T18:00:00Z, or a date such as 2026-12-31, which ends with that day in UTC`
	// Layout formats times so that Parse reads them.
	Layout = time.RFC3339Nano
)

// Parse reads the time at which something ends, as written in files: it means the same
// wherever it is read. A date stands for the end of its day, since "until 31 December"
// includes that day.
func Parse(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("found %s; allowed: %s", foundTime(text), allowedMoment)
	}
	return t.UTC(), nil
}

// Until says when something ends, in the shell's time zone, and how far that is from now.
func Until(at *timestamppb.Timestamp, now time.Time) string {
	t := at.AsTime()
	text := End(t, now.Location())
	if left := t.Sub(now); left > 0 {
		text += " (" + timespan.Format(left) + ")"
	}
	return text
}

// End says when something ends, in a time zone and with the zone's name. Z, which is UTC,
// is a name.
func End(at time.Time, zone *time.Location) string {
	text := at.In(zone).Format(Layout)
	if name, offset := at.In(zone).Zone(); offset != 0 && !strings.ContainsAny(name, "+-") {
		text += " " + name
	}
	return text
}

// Text formats a time in the shell's time zone.
func Text(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Truncate(time.Second).Format(time.RFC3339)
}
