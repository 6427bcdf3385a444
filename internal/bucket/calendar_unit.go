package bucket

import (
	"fmt"
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
// clocks that nobody sets.
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
