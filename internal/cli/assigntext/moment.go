package assigntext

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
)

const (
	// AllowedEnd says what ParseEnd reads.
	AllowedEnd = "a span such as 24h, 90m or 2d, 2026-12-24, which ends with that day, 2026-12-24 18:00, or with a zone 2026-12-24T18:00:00Z"

	allowedInFiles = `a moment such as 2026-12-31T18:00:00Z, or a date such as 2026-12-31, which ends with that day in UTC`
	// MomentLayout formats times so that ParseMoment reads them.
	MomentLayout = time.RFC3339Nano
	// minutes is a time in the shell's time zone.
	minutes = "2006-01-02 15:04"
)

// ParseEnd reads when something ends, in the time zone of now. A span begins now, and a
// date stands for the end of its day.
func ParseEnd(text string, now time.Time) (time.Time, error) {
	if at, err := inZone(text, now.Location()); err == nil {
		return at, nil
	}
	if at, err := time.ParseInLocation(minutes, text, now.Location()); err == nil {
		return at, nil
	}
	if span, err := period.Parse(text); err == nil {
		return now.Add(span), nil
	}
	return time.Time{}, fmt.Errorf("found %q; allowed: %s", text, AllowedEnd)
}

// ParseMoment reads when something ends, as written in files: it means the same wherever it is
// read. A date stands for the end of its day.
func ParseMoment(text string) (time.Time, error) {
	at, err := inZone(text, time.UTC)
	if err != nil {
		return time.Time{}, fmt.Errorf("found %q; allowed: %s", text, allowedInFiles)
	}
	return at, nil
}

// inZone reads a date, as the end of its day in a time zone, or a moment with a zone.
func inZone(text string, zone *time.Location) (time.Time, error) {
	if day, err := time.ParseInLocation(time.DateOnly, text, zone); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	return at.In(zone), err
}

// ShortMoment says when something ends, in the time zone of now: "today 18:00", or "2026-12-31",
// which includes that day. It leaves out seconds unless the end is within an hour.
func ShortMoment(at, now time.Time) string {
	at = at.In(now.Location())
	clock := at.Format(" 15:04")
	switch {
	case at.Hour() == 0 && at.Minute() == 0 && at.Second() == 0:
		at, clock = at.Add(-time.Second), ""
	case at.Second() != 0 && at.Sub(now).Abs() < time.Hour:
		clock = at.Format(" 15:04:05")
	}
	day := at.Format(time.DateOnly)
	switch day {
	case now.Format(time.DateOnly):
		day = "today"
	case now.AddDate(0, 0, 1).Format(time.DateOnly):
		day = "tomorrow"
	}
	return day + clock
}

// EndText says when something ends, in a time zone and with the zone's name. Z, which is UTC,
// is a name.
func EndText(at time.Time, zone *time.Location) string {
	text := at.In(zone).Format(MomentLayout)
	if name, offset := at.In(zone).Zone(); offset != 0 && !strings.ContainsAny(name, "+-") {
		text += " " + name
	}
	return text
}

// MomentText formats a time in the shell's time zone.
func MomentText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Truncate(time.Second).Format(time.RFC3339)
}
