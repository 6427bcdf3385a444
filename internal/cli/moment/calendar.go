package moment

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
)

const (
	// AllowedEnd says when something may end.
	AllowedEnd = "today, tomorrow, friday or 2026-12-24, which end with that day, 18:00, tomorrow 18:00, 2026-12-24T18:00, or with a zone 2026-12-24T18:00:00Z"
	// AllowedPast says which times of a log can be searched.
	AllowedPast = "a span before now such as 1h, today, yesterday, friday, 2026-12-24, 03:00, 2026-12-24T03:00, or with a zone 2026-12-24T03:00:00Z"
)

// Interval is what a word for a time stands for: a day, or a moment, whose ends are
// equal.
type Interval struct{ From, To time.Time }

// ParseEnd reads when something ends, in the time zone of now. A day stands for its end, a
// weekday for the next one after today, and a time of day for the next one, unless a day
// stands before it.
func ParseEnd(text string, now time.Time) (time.Time, error) {
	if i, ok := namedTime(text, now.Location()); ok {
		return i.To, nil
	}
	if at, ok := clockOn(text, now); ok {
		if !at.After(now) {
			at, _ = clockOn(text, now.AddDate(0, 0, 1))
		}
		return at, nil
	}
	word := strings.ToLower(text)
	if day, ok := dayToCome(word, now); ok {
		return day.To, nil
	}
	if name, clock, found := strings.Cut(word, " "); found {
		if day, ok := dayToCome(name, now); ok {
			if at, ok := clockOn(clock, day.From); ok {
				return at, nil
			}
		}
	}
	if word == "now" || word == "yesterday" {
		return time.Time{}, fmt.Errorf("found %q, which is no moment to come; allowed: %s", text, AllowedEnd)
	}
	return time.Time{}, fmt.Errorf("found %s; allowed: %s", foundTime(text), AllowedEnd)
}

// dayToCome returns the day that a word names: today, tomorrow, or the next such weekday.
func dayToCome(word string, now time.Time) (Interval, bool) {
	switch weekday, ok := weekdays[word]; {
	case word == "today":
		return dayOf(now, 0), true
	case word == "tomorrow":
		return dayOf(now, 1), true
	case ok:
		return dayOf(now, 1+int(weekday-now.Weekday()+6)%7), true
	}
	return Interval{}, false
}

// ParsePast reads when something was, in the time zone of now: a span of time before it,
// a day, a weekday or a time of day. The latter two mean the most recent one, and today
// counts for a weekday.
func ParsePast(text string, now time.Time) (Interval, error) {
	if i, ok := namedTime(text, now.Location()); ok {
		return i, nil
	}
	if at, ok := clockOn(text, now); ok {
		if at.After(now) {
			at, _ = clockOn(text, now.AddDate(0, 0, -1))
		}
		return Interval{at, at}, nil
	}
	word := strings.ToLower(text)
	if word == "now" {
		return Interval{now, now}, nil
	}
	if word == "today" {
		return dayOf(now, 0), nil
	}
	if word == "yesterday" {
		return dayOf(now, -1), nil
	}
	if weekday, ok := weekdays[word]; ok {
		return dayOf(now, -(int(now.Weekday()-weekday+7) % 7)), nil
	}
	if before, err := period.Parse(text); err == nil {
		at := now.Add(-before)
		return Interval{at, at}, nil
	}
	if word == "tomorrow" {
		return Interval{}, fmt.Errorf("found %q, which is to come; allowed: %s", text, AllowedPast)
	}
	return Interval{}, fmt.Errorf("found %s; allowed: %s", foundTime(text), AllowedPast)
}

// foundTime quotes what is not a time, and says so if only the calendar or the clock
// lacks it: 30 February and 25:00 are spelled correctly.
func foundTime(text string) string {
	quoted := strconv.Quote(text)
	for _, layout := range append([]string{time.DateOnly, "15:04", "15:04:05"}, momentLayouts...) {
		_, err := time.Parse(layout, text)
		var wrong *time.ParseError
		if !errors.As(err, &wrong) {
			continue
		}
		switch wrong.Message {
		case ": month out of range", ": day out of range":
			return quoted + ", and there is no such day"
		case ": hour out of range", ": minute out of range", ": second out of range":
			return quoted + ", and there is no such time of day"
		}
	}
	return quoted
}

// momentLayouts are the layouts of times on a named day.
var momentLayouts = []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime}

// namedTime reads what does not depend on today: a date, or a time with a zone or in loc.
func namedTime(text string, loc *time.Location) (Interval, bool) {
	if day, err := time.ParseInLocation(time.DateOnly, text, loc); err == nil {
		return dayOf(day, 0), true
	}
	for _, layout := range momentLayouts {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return Interval{t.In(loc), t.In(loc)}, true
		}
	}
	return Interval{}, false
}

// dayOf returns the day that is so many days after that of a moment. Not every day has 24
// hours, or a midnight.
func dayOf(at time.Time, days int) Interval {
	loc := at.Location()
	noon := time.Date(at.Year(), at.Month(), at.Day()+days, 12, 0, 0, 0, loc)
	from, to := bucket.Calendar{Unit: bucket.CalendarDay, Zone: loc}.Window(noon.UnixMicro())
	return Interval{time.UnixMicro(from).In(loc), time.UnixMicro(to).In(loc)}
}

// clockOn returns the time of day that a text names, on the day of a moment.
func clockOn(text string, day time.Time) (time.Time, bool) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(day.Year(), day.Month(), day.Day(), t.Hour(), t.Minute(), t.Second(), 0, day.Location()), true
		}
	}
	return time.Time{}, false
}

// weekdays maps their names, and the usual abbreviations.
var weekdays = func() map[string]time.Weekday {
	names := make(map[string]time.Weekday)
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		names[name], names[name[:3]] = d, d
	}
	return names
}()
