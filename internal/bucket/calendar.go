package bucket

import (
	"fmt"
	"sync/atomic"
	"time"
)

// CalendarUnit is the length of a window by calendar.
type CalendarUnit uint8

// The units of calendars. NoCalendar is that of a limit with a period.
const (
	NoCalendar CalendarUnit = iota
	CalendarHour
	CalendarDay
	CalendarWeek
	CalendarMonth
	CalendarQuarter
	CalendarYear
)

// calendarUnits has the names of the units, and how long the longest window of each is on
// clocks that no one sets.
var calendarUnits = [...]struct {
	name    string
	nominal time.Duration
}{
	CalendarHour:    {name: "hour", nominal: time.Hour},
	CalendarDay:     {name: "day", nominal: 24 * time.Hour},
	CalendarWeek:    {name: "week", nominal: 7 * 24 * time.Hour},
	CalendarMonth:   {name: "month", nominal: 31 * 24 * time.Hour},
	CalendarQuarter: {name: "quarter", nominal: 92 * 24 * time.Hour},
	CalendarYear:    {name: "year", nominal: 366 * 24 * time.Hour},
}

func (u CalendarUnit) isKnown() bool { return u > NoCalendar && int(u) < len(calendarUnits) }

// String returns the name of the unit, as in a limits file.
func (u CalendarUnit) String() string {
	if !u.isKnown() {
		return fmt.Sprintf("CalendarUnit(%d)", uint8(u))
	}
	return calendarUnits[u].name
}

// CalendarUnits lists the units, the shortest first.
func CalendarUnits() (all []CalendarUnit) {
	for u := CalendarHour; u.isKnown(); u++ {
		all = append(all, u)
	}
	return all
}

// ParseCalendarUnit returns the unit of that name.
func ParseCalendarUnit(name string) (CalendarUnit, bool) {
	for _, u := range CalendarUnits() {
		if u.String() == name {
			return u, true
		}
	}
	return NoCalendar, false
}

// Calendar says when the windows of a fixed_window begin: at a moment of each hour, day,
// week and so on by the clocks of a place. The zero Calendar is that of a limit with a
// period.
//
// A window begins at the first moment at which the clocks show its start, or a later time.
// So if they skip the start, it begins when they have skipped it; if they show it twice,
// at the first time; and a window without any moment, such as a day that a place left
// out, is none. Of a month without the day of the start it is the last day.
type Calendar struct {
	Unit   CalendarUnit
	Starts Starts
	// Zone is one of package zone's, whose zones can be compared.
	Zone *time.Location
	// Moved is the start of a window in which what was used before it counts too, in
	// microseconds since the Unix epoch, or 0 if there is none; see MovedAt.
	Moved int64
}

// Period returns how long the longest window is on clocks that no one sets: the Period of
// a limit by calendar.
func (c Calendar) Period() time.Duration { return calendarUnits[c.Unit].nominal }

// Window returns the window that contains a moment: its start, and the end, which is the
// start of the next. All are in microseconds since the Unix epoch.
func (c Calendar) Window(at int64) (start, end int64) {
	second := floorDiv(at, 1e6)
	n := c.countOf(second)
	for {
		next := c.startOf(n + 1)
		if next > second {
			return c.startOf(n) * 1e6, next * 1e6
		}
		n++
	}
}

// Borders returns the start of the window that contains a moment, its end, and the end of
// the next window, all in microseconds since the Unix epoch.
func (c Calendar) Borders(at int64) [3]int64 {
	start, end := c.Window(at)
	_, next := c.Window(end)
	return [3]int64{start, end, next}
}

// movedFor is how long after the first new start a calendar knows that it was moved: longer
// than the clocks of daemons and stores differ.
const movedFor = int64(time.Hour / time.Microsecond)

// MovedAt returns the calendar as one that took the place of another at a moment, where it
// is now: what was used before counts until the first start after that moment. Calendars
// that were moved in the same window are equal, and equal to others once that is over.
// Moments are in microseconds since the Unix epoch.
func (c Calendar) MovedAt(at, now int64) Calendar {
	if longest := (c.Period() + 2*24*time.Hour).Microseconds(); at == 0 || now-at > longest {
		return c
	}
	if start, end := c.Window(at); now < end+movedFor {
		c.Moved = start
	}
	return c
}

// String says where all windows of a calendar begin; no two look alike.
func (c Calendar) String() string {
	return fmt.Sprintf("%s, starts %q, in %s", c.Unit, c.Starts, c.Zone)
}

// calendarWindows are the windows of a limit. It remembers the last ones that were asked
// for: most hits are in the same window.
type calendarWindows struct {
	Calendar
	last atomic.Pointer[[3]int64]
}

// borders is Borders.
func (w *calendarWindows) borders(at int64) *[3]int64 {
	if b := w.last.Load(); b != nil && b[0] <= at && at < b[1] {
		return b
	}
	b := w.Borders(at)
	w.last.Store(&b)
	return &b
}

// Windows are counted: a count names the start that clocks show, such as 15 November 06:00
// of the year 2026. It grows by one from each start to the next.

// countOf returns the count of the last start that clocks have shown at a moment in
// seconds, if they had never been set back.
func (c Calendar) countOf(second int64) int64 {
	t := time.Unix(second, 0).In(c.Zone)
	year, month, _ := t.Date()
	shown := second + offset(t) // as if the clocks were those of UTC
	days := floorDiv(shown, secondsOfDay)
	var n int64
	switch c.Unit {
	case CalendarHour:
		n = floorDiv(shown, secondsOfHour)
	case CalendarDay:
		n = days
	case CalendarWeek:
		n = floorDiv(days+daysSinceMonday, 7)
	case CalendarMonth:
		n = monthsOf(year, month)
	case CalendarQuarter:
		n = floorDiv(monthsOf(year, month)-c.Starts.months(), 3)
	case CalendarYear:
		n = floorDiv(monthsOf(year, month)-c.Starts.months(), 12)
	}
	for c.shownAt(n) > shown {
		n--
	}
	return n
}

const (
	secondsOfHour = 60 * 60
	secondsOfDay  = 24 * secondsOfHour
	// daysSinceMonday is how long before the Unix epoch its week began.
	daysSinceMonday = 3
)

// monthsOf counts months since the year 0.
func monthsOf(year int, month time.Month) int64 { return int64(year)*12 + int64(month) - 1 }

// shownAt returns what clocks show at the n-th start: the seconds since the Unix epoch if
// they were those of UTC.
func (c Calendar) shownAt(n int64) int64 {
	s := c.Starts
	minute := int64(s.minute) * 60
	switch c.Unit {
	case CalendarHour:
		return n*secondsOfHour + minute
	case CalendarDay:
		return n*secondsOfDay + minute
	case CalendarWeek:
		return (n*7-daysSinceMonday+int64(s.weekday))*secondsOfDay + minute
	case CalendarMonth:
		return dayOfMonth(n, s.day()) + minute
	case CalendarQuarter:
		return dayOfMonth(n*3+s.months(), s.day()) + minute
	default:
		return dayOfMonth(n*12+s.months(), s.day()) + minute
	}
}

// dayOfMonth returns the beginning of a day, or of the last one of a month that has fewer.
func dayOfMonth(months int64, day uint8) int64 {
	year, month := int(floorDiv(months, 12)), time.Month(months-12*floorDiv(months, 12)+1)
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(year, month, min(int(day), last), 0, 0, 0, 0, time.UTC).Unix()
}

// startOf returns the moment of the n-th start in seconds: the first one at which clocks
// show it, or a later time.
func (c Calendar) startOf(n int64) int64 {
	shown := c.shownAt(n)
	// No place's clocks are a day from those of UTC.
	from := shown - secondsOfDay
	for {
		t := time.Unix(from, 0).In(c.Zone)
		first := max(from, shown-offset(t))
		end, ends := offsetEnd(t)
		if !ends || first < end {
			return first
		}
		from = end
	}
}

// offsetEnd returns a moment after t, in seconds, up to which clocks have the offset that
// they have at t, and whether there is one. Afterwards they may still have it.
func offsetEnd(t time.Time) (end int64, ends bool) {
	_, bound := t.ZoneBounds()
	switch {
	case bound.IsZero():
		return 0, false
	case !bound.After(t):
		// For years beyond a zone's table, ZoneBounds counts 365 days to the end of
		// each.
		return (floorDiv(t.Unix(), secondsOfDay) + 1) * secondsOfDay, true
	}
	return bound.Unix(), true
}

func offset(t time.Time) int64 {
	_, seconds := t.Zone()
	return int64(seconds)
}

// floorDiv returns a / b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
