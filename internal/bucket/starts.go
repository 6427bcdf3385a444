package bucket

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Starts says where in each hour, day, week and so on the windows of a calendar begin.
// The zero Starts is the beginning: minute 0, midnight, Monday, day 1, 1 January. Equal
// ones are equal values.
type Starts struct {
	form startsForm
	// month is 1 to 12, and the day is 1 to 31 or beyond the month's last; weekday counts
	// from Monday on, and minute within the hour or the day.
	month, dayOfMonth, weekday uint8
	minute                     uint16
}

// startsForm is one of the forms in which starts are written.
type startsForm uint8

const (
	atBeginning  startsForm = iota
	atMinute                // :15
	atTime                  // 06:00
	onWeekday               // monday, monday 06:00
	onDayOfMonth            // 15, 15 06:00
	onDate                  // 04-01
)

// startsForms has the form of each unit's starts, and examples.
var startsForms = [...]struct {
	form    startsForm
	allowed string
}{
	CalendarHour:    {form: atMinute, allowed: `a minute, such as ":15"`},
	CalendarDay:     {form: atTime, allowed: `a time, such as "06:00"`},
	CalendarWeek:    {form: onWeekday, allowed: `a weekday, such as monday or "monday 06:00"`},
	CalendarMonth:   {form: onDayOfMonth, allowed: `a day of the month, such as 15 or "15 06:00"`},
	CalendarQuarter: {form: onDate, allowed: `the month and day of a quarter's first day, such as "04-01"`},
	CalendarYear:    {form: onDate, allowed: `the month and day of the year's first day, such as "04-01"`},
}

// AllowedStarts says which starts the windows of a unit may have; with NoCalendar, which
// those of some unit may.
func AllowedStarts(u CalendarUnit) string {
	if !u.isKnown() {
		return `:MM of an hour, HH:MM of a day, monday or "monday HH:MM" of a week, 15 or "15 HH:MM" of a month, MM-DD of a quarter or year`
	}
	return startsForms[u].allowed
}

// Fit reports whether the windows of a unit may have these starts.
func (s Starts) Fit(u CalendarUnit) bool {
	return u.isKnown() && (s.form == atBeginning || s.form == startsForms[u].form)
}

func (s Starts) months() int64 { return max(1, int64(s.month)) - 1 }

func (s Starts) day() uint8 { return max(1, s.dayOfMonth) }

var weekdays = [...]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// beginnings are, by their form, the starts that the zero Starts says too.
var beginnings = [...]Starts{
	atMinute: {form: atMinute}, atTime: {form: atTime}, onWeekday: {form: onWeekday},
	onDayOfMonth: {form: onDayOfMonth, dayOfMonth: 1}, onDate: {form: onDate, month: 1, dayOfMonth: 1},
}

// ParseStarts reads starts as limits files and commands write them. units are those whose
// windows may have them; there are none if the text cannot be read.
func ParseStarts(text string) (s Starts, units []CalendarUnit) {
	s, ok := parseStarts(text)
	if !ok {
		return Starts{}, nil
	}
	for _, u := range CalendarUnits() {
		if s.Fit(u) {
			units = append(units, u)
		}
	}
	if slices.Contains(beginnings[:], s) {
		s = Starts{}
	}
	return s, units
}

func parseStarts(text string) (s Starts, ok bool) {
	first, rest, hasTime := strings.Cut(text, " ")
	weekday := slices.Index(weekdays[:], first)
	switch {
	case weekday >= 0:
		s = Starts{form: onWeekday, weekday: uint8(weekday)}
	case isDigits(first, 1, 2):
		s = Starts{form: onDayOfMonth, dayOfMonth: number(first)}
		ok = 1 <= s.dayOfMonth && s.dayOfMonth <= 31
		if !ok {
			return s, false
		}
	case hasTime:
		return s, false
	case strings.HasPrefix(text, ":"):
		s.form = atMinute
		s.minute, ok = parseTime("00" + text)
		return s, ok
	case strings.Contains(text, "-"):
		return parseDate(text)
	default:
		s.form = atTime
		s.minute, ok = parseTime(text)
		return s, ok
	}
	if hasTime {
		s.minute, ok = parseTime(rest)
		return s, ok
	}
	return s, true
}

// parseDate reads a month and a day, MM-DD, that some year has.
func parseDate(text string) (s Starts, ok bool) {
	month, day, _ := strings.Cut(text, "-")
	if !isDigits(month, 2, 2) || !isDigits(day, 2, 2) {
		return s, false
	}
	s = Starts{form: onDate, month: number(month), dayOfMonth: number(day)}
	const leapYear = 2028
	last := time.Date(leapYear, time.Month(s.month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return s, 1 <= s.month && s.month <= 12 && 1 <= s.dayOfMonth && int(s.dayOfMonth) <= last
}

// parseTime reads HH:MM into minutes.
func parseTime(text string) (minutes uint16, ok bool) {
	hour, minute, _ := strings.Cut(text, ":")
	if !isDigits(hour, 2, 2) || !isDigits(minute, 2, 2) || number(hour) > 23 || number(minute) > 59 {
		return 0, false
	}
	return uint16(number(hour))*60 + uint16(number(minute)), true
}

func isDigits(text string, minLength, maxLength int) bool {
	return minLength <= len(text) && len(text) <= maxLength && strings.Trim(text, "0123456789") == ""
}

// number reads up to two digits.
func number(digits string) uint8 {
	n, _ := strconv.ParseUint(digits, 10, 8) // they were looked at
	return uint8(n)
}

// String writes starts as ParseStarts reads them; the zero Starts as an empty text.
func (s Starts) String() string {
	switch s.form {
	case atMinute:
		return fmt.Sprintf(":%02d", s.minute)
	case atTime:
		return s.time()
	case onWeekday:
		return s.withTime(weekdays[s.weekday])
	case onDayOfMonth:
		return s.withTime(strconv.Itoa(int(s.dayOfMonth)))
	case onDate:
		return fmt.Sprintf("%02d-%02d", s.month, s.dayOfMonth)
	}
	return ""
}

// In writes starts as String does, and the zero Starts as the beginning of a unit's windows.
func (s Starts) In(u CalendarUnit) string {
	if s.form == atBeginning && u.isKnown() {
		return beginnings[startsForms[u].form].String()
	}
	return s.String()
}

func (s Starts) time() string { return fmt.Sprintf("%02d:%02d", s.minute/60, s.minute%60) }

func (s Starts) withTime(day string) string {
	if s.minute == 0 {
		return day
	}
	return day + " " + s.time()
}
