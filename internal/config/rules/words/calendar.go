package words

import (
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Calendar says which windows a calendar has: "calendar month from day 15 in
// Europe/Berlin".
func Calendar(c bucket.Calendar) string {
	text := "calendar " + c.Unit.String()
	if starts := startsText(c); starts != "" {
		text += " from " + starts
	}
	return text + " in " + c.Zone.String()
}

// startsText says where windows begin, or nothing if that is their beginning.
func startsText(c bucket.Calendar) string {
	starts := c.Starts.String()
	switch {
	case starts == "":
		return ""
	case c.Unit == bucket.CalendarMonth:
		return "day " + starts
	case c.Unit == bucket.CalendarWeek:
		return strings.ToUpper(starts[:1]) + starts[1:]
	case c.Unit == bucket.CalendarQuarter || c.Unit == bucket.CalendarYear:
		first, _ := time.Parse("01-02", starts) // of the year 0, which has each day
		return first.Format("2 January")
	}
	return starts
}

// NextReset says when the window of a limit by calendar ends, by the clocks of its place:
// ", next reset 1 December 00:00 CET". It is empty for other limits.
func NextReset(l *bucket.Limit, now time.Time) string {
	b, ok := l.Borders(now.UnixMicro())
	if !ok {
		return ""
	}
	return ", next reset " + Moment(time.UnixMicro(b[1]).In(l.Calendar.Zone), now)
}

// Moment says when something is, by the clocks of its place; with the year if that is not
// the present one.
func Moment(at, now time.Time) string {
	layout := "2 January 15:04 MST"
	if at.Year() != now.In(at.Location()).Year() {
		layout = "2 January 2006 15:04 MST"
	}
	return at.Format(layout)
}
