package bucket_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

func mustCalendar(t testing.TB, unit bucket.CalendarUnit, starts, name string) bucket.Calendar {
	t.Helper()
	z, err := zone.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	c := bucket.Calendar{Unit: unit, Zone: z}
	if starts != "" {
		s, units := bucket.ParseStarts(starts)
		if !slices.Contains(units, unit) {
			t.Fatalf("%q starts %v", starts, units)
		}
		c.Starts = s
	}
	return c
}

// The windows that people may doubt, with their moments written out.
func TestWindowsByCalendar(t *testing.T) {
	for _, c := range []struct {
		name         string
		unit         bucket.CalendarUnit
		starts, zone string
		at           string
		start, end   string
	}{
		{"a day of 24 hours", bucket.CalendarDay, "", "UTC", "2026-11-15T12:00:00Z", "2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z"},
		{"a day of 23 hours", bucket.CalendarDay, "", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"a day of 25 hours", bucket.CalendarDay, "", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"a start that the day does not have is the next moment that it has", bucket.CalendarDay, "02:30", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"until there it is the day before", bucket.CalendarDay, "02:30", "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"},
		{"a start that the day has twice is the first", bucket.CalendarDay, "02:30", "Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"a day that a place left out", bucket.CalendarDay, "", "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"after it comes the next", bucket.CalendarDay, "", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"midnight that is skipped", bucket.CalendarDay, "", "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
		{"an hour that clocks show twice is one", bucket.CalendarHour, "", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"an hour that is skipped is none", bucket.CalendarHour, "", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{"a quarter past", bucket.CalendarHour, ":15", "Asia/Kathmandu", "2026-11-15T12:00:00Z", "2026-11-15T11:30:00Z", "2026-11-15T12:30:00Z"},
		{"half an hour that is skipped", bucket.CalendarHour, "", "Australia/Lord_Howe", "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		{"a week from Monday", bucket.CalendarWeek, "", "UTC", "2026-11-15T23:59:59Z", "2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z"},
		{"a week from Sunday", bucket.CalendarWeek, "sunday 06:00", "UTC", "2026-11-15T06:00:00Z", "2026-11-15T06:00:00Z", "2026-11-22T06:00:00Z"},
		{"a month of 28 days", bucket.CalendarMonth, "", "Europe/Berlin", "2026-02-14T00:00:00Z", "2026-01-31T23:00:00Z", "2026-02-28T23:00:00Z"},
		{"a billing day", bucket.CalendarMonth, "15", "Europe/Berlin", "2026-11-14T22:59:59Z", "2026-10-14T22:00:00Z", "2026-11-14T23:00:00Z"},
		{"the last day of a month without a 31st", bucket.CalendarMonth, "31", "UTC", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"the last day of a February of 29 days", bucket.CalendarMonth, "30 06:00", "UTC", "2028-02-29T05:59:59Z", "2028-01-30T06:00:00Z", "2028-02-29T06:00:00Z"},
		{"a quarter", bucket.CalendarQuarter, "", "UTC", "2026-12-31T23:59:59Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a quarter of another year", bucket.CalendarQuarter, "02-15", "UTC", "2027-01-01T00:00:00Z", "2026-11-15T00:00:00Z", "2027-02-15T00:00:00Z"},
		{"a financial year", bucket.CalendarYear, "04-06", "Europe/London", "2026-04-05T22:59:59Z", "2025-04-05T23:00:00Z", "2026-04-05T23:00:00Z"},
		{"a year from 29 February", bucket.CalendarYear, "02-29", "UTC", "2027-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"the last day of a leap year beyond the table of a zone", bucket.CalendarDay, "", "America/New_York", "2096-12-31T12:00:00Z", "2096-12-31T05:00:00Z", "2097-01-01T05:00:00Z"},
		{"before the epoch", bucket.CalendarMonth, "", "America/New_York", "1970-01-01T00:00:00Z", "1969-12-01T05:00:00Z", "1970-01-01T05:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			moment := func(text string) int64 {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				return at.UnixMicro()
			}
			text := func(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339Nano) }
			start, end := mustCalendar(t, c.unit, c.starts, c.zone).Window(moment(c.at))
			if start != moment(c.start) || end != moment(c.end) {
				t.Errorf("%s is in %s to %s, want %s to %s", c.at, text(start), text(end), c.start, c.end)
			}
		})
	}
}

// Windows have no gaps, and none is shorter than a quarter of an hour.
func TestWindowsFollowEachOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	all := []string{"", ":59", "23:59", "sunday 00:30", "31 23:59", "02-29", "12-31"}
	names := zone.Names()
	for range 20_000 {
		starts := all[r.IntN(len(all))]
		_, units := bucket.ParseStarts(starts)
		if starts == "" {
			units = bucket.CalendarUnits()
		}
		c := mustCalendar(t, units[r.IntN(len(units))], starts, names[r.IntN(len(names))])
		at := r.Int64N(4_133_980_800_000_000)
		b := c.Borders(at)
		start, end := c.Window(b[1])
		if !(b[0] <= at && at < b[1] && b[1] < b[2]) || start != b[1] || end != b[2] || b[1]-b[0] < 15*60e6 {
			t.Fatalf("%s: the borders about %d are %v, and then %d to %d", c, at, b, start, end)
		}
	}
}

func TestStartsAreReadAndWritten(t *testing.T) {
	hour, day, week, month, quarter, year := bucket.CalendarHour, bucket.CalendarDay, bucket.CalendarWeek, bucket.CalendarMonth, bucket.CalendarQuarter, bucket.CalendarYear
	for text, want := range map[string][]bucket.CalendarUnit{
		":15": {hour}, ":59": {hour},
		"06:00": {day}, "00:15": {day}, "23:59": {day},
		"tuesday": {week}, "sunday 06:00": {week}, "monday 00:01": {week},
		"15": {month}, "31": {month}, "15 06:00": {month}, "1 06:00": {month},
		"04-01": {quarter, year}, "02-29": {quarter, year}, "12-31": {quarter, year},
	} {
		s, units := bucket.ParseStarts(text)
		if !slices.Equal(units, want) || s.String() != text {
			t.Errorf("%q is read as %q of %v, want %v", text, s, units, want)
		}
	}
	for _, beginning := range []string{":00", "00:00", "monday", "monday 00:00", "1", "01", "1 00:00", "01-01"} {
		if s, units := bucket.ParseStarts(beginning); s != (bucket.Starts{}) || len(units) == 0 {
			t.Errorf("%q is read as %q of %v", beginning, s, units)
		}
	}
	for _, u := range bucket.CalendarUnits() {
		text := bucket.Starts{}.In(u)
		if s, units := bucket.ParseStarts(text); s != (bucket.Starts{}) || !slices.Contains(units, u) {
			t.Errorf("the beginning of a %s is %q, which is read as %q of %v", u, text, s, units)
		}
	}
	if s, _ := bucket.ParseStarts("15"); s.In(month) != "15" {
		t.Errorf("the 15th of a month is %q", s.In(month))
	}
	for _, wrong := range []string{"", " ", ":60", ":5", "15:", "6:00", "24:00", "06:00 ", "06:00:00", "Monday", "mon", "monday  06:00", "monday 24:00", "0", "32", "015", "-1", "+1", "1.5",
		"15 6:00", "15  06:00", "00-01", "13-01", "02-30", "04-31", "4-1", "04-01 06:00", "2026-04-01", "०१", "1\n", strings.Repeat("1", 1<<20)} {
		if s, units := bucket.ParseStarts(wrong); len(units) > 0 || s != (bucket.Starts{}) {
			t.Errorf("%.40q is read as %q of %v", wrong, s, units)
		}
	}
}

func FuzzStarts(f *testing.F) {
	for _, text := range []string{":15", "06:00", "monday 06:00", "15 06:00", "04-01", "1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, units := bucket.ParseStarts(text)
		if len(units) == 0 {
			return
		}
		for _, u := range units {
			b := bucket.Calendar{Unit: u, Starts: s, Zone: time.UTC}.Borders(1_800_000_000_000_000)
			if !(b[0] <= 1_800_000_000_000_000 && b[0] < b[1] && b[1] < b[2]) {
				t.Errorf("%q of a %s: %v", text, u, b)
			}
		}
		if again, _ := bucket.ParseStarts(s.String()); s != (bucket.Starts{}) && again != s {
			t.Errorf("%q is written %q, and read as %q", text, s, again)
		}
	})
}

func TestCalendarsThatAreNone(t *testing.T) {
	month := mustCalendar(t, bucket.CalendarMonth, "15", "Europe/Berlin")
	noZone, wrongStarts := month, mustCalendar(t, bucket.CalendarDay, "06:00", "UTC")
	noZone.Zone, wrongStarts.Unit = nil, bucket.CalendarYear
	for _, c := range []struct {
		name   string
		spec   bucket.Spec
		fields []string
	}{
		{"a month", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Calendar: month}, nil},
		{"with the period that is its own", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: 31 * day, Calendar: month}, nil},
		{"with another period", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: 30 * day, Calendar: month}, []string{"period"}},
		{"another algorithm", bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 5, Calendar: month}, []string{"calendar"}},
		{"a burst", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Burst: 5, Calendar: month}, []string{"burst"}},
		{"no zone", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Calendar: noZone}, []string{"time_zone"}},
		{"starts of another unit", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Calendar: wrongStarts}, []string{"starts"}},
		{"no unit", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: day, Calendar: bucket.Calendar{Zone: time.UTC}}, []string{"calendar"}},
		{"an unknown unit", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: day, Calendar: bucket.Calendar{Unit: 7, Zone: time.UTC}}, []string{"calendar"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := bucket.NewLimit(c.spec)
			if got := fieldsOf(err); !slices.Equal(got, c.fields) {
				t.Fatalf("the error names %v, want %v: %v", got, c.fields, err)
			}
			if err == nil && l.Period != 31*day {
				t.Errorf("its period is %s", l.Period)
			}
		})
	}
}

// States are counted alike only by limits whose windows are the same.
func TestCalendarsCountAsTheirWindows(t *testing.T) {
	base := bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Calendar: mustCalendar(t, bucket.CalendarMonth, "15", "Europe/Berlin")}
	limitOf := func(s bucket.Spec) *bucket.Limit {
		l, err := bucket.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	same := base
	same.Calendar = mustCalendar(t, bucket.CalendarMonth, "15 00:00", "Europe/Berlin")
	if !limitOf(base).CountsAs(limitOf(same)) {
		t.Error("the same windows count otherwise")
	}
	period := base
	period.Calendar, period.Period = bucket.Calendar{}, 31*day
	others := []bucket.Spec{period}
	for _, c := range []bucket.Calendar{
		mustCalendar(t, bucket.CalendarMonth, "16", "Europe/Berlin"), mustCalendar(t, bucket.CalendarMonth, "15 00:01", "Europe/Berlin"),
		mustCalendar(t, bucket.CalendarMonth, "15", "Europe/Paris"), mustCalendar(t, bucket.CalendarMonth, "", "Europe/Berlin"),
	} {
		other := base
		other.Calendar = c
		others = append(others, other)
	}
	for _, other := range others {
		if limitOf(base).CountsAs(limitOf(other)) {
			t.Errorf("%s counts as %s", other.Calendar, base.Calendar)
		}
		if key := limitOf(other).AppendKey(nil, []byte("s")); !bytes.Equal(key, limitOf(base).AppendKey(nil, []byte("s"))) {
			t.Errorf("%s has another key: %s", other.Calendar, key)
		}
	}
}

// A share has the windows of its limit, and so has what is reported as used.
func TestSharesKeepTheCalendar(t *testing.T) {
	c := mustCalendar(t, bucket.CalendarMonth, "15", "Europe/Berlin")
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100, Calendar: c, Postpaid: bucket.PostpaidAuto})
	if err != nil {
		t.Fatal(err)
	}
	const at = int64(1_800_000_000_000_000)
	want, _ := l.Borders(at)
	for name, other := range map[string]*bucket.Limit{"a share": l.Share(3), "what is reported": l.Reported(), "a share of that": l.Reported().Share(3)} {
		if got, ok := other.Borders(at); !ok || got != want || other.Capacity != 33 && other.Capacity != 100 {
			t.Errorf("%s has %d in %v, want the windows %v", name, other.Capacity, got, want)
		}
	}
}

// What was counted by earlier numbers counts in the window of its last write, as the new
// numbers have it, and no longer than by the earlier ones.
func TestCountsOfEarlierNumbers(t *testing.T) {
	at := func(text string) int64 {
		moment, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment.UnixMicro()
	}
	limitOf := func(s bucket.Spec) *bucket.Limit {
		s.Algorithm, s.Requests = bucket.FixedWindow, 10
		l, err := bucket.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	by := func(unit bucket.CalendarUnit, starts string) *bucket.Limit {
		return limitOf(bucket.Spec{Calendar: mustCalendar(t, unit, starts, "UTC")})
	}
	movedBy := func(starts, change string) *bucket.Limit {
		return limitOf(bucket.Spec{Calendar: mustCalendar(t, bucket.CalendarMonth, starts, "UTC").MovedAt(at(change), at(change))})
	}
	for _, c := range []struct {
		name          string
		before, after *bucket.Limit
		used, asked   string
		// free is when the limit is full again, if that is not now.
		free string
	}{
		{"another day of the month", by(bucket.CalendarMonth, ""), by(bucket.CalendarMonth, "15"), "2026-03-10 12:00:00", "2026-03-12 00:00:00", "2026-03-15 00:00:00"},
		{"which has come since", by(bucket.CalendarMonth, ""), by(bucket.CalendarMonth, "15"), "2026-03-10 12:00:00", "2026-03-15 00:00:00", ""},
		{"which had been before", by(bucket.CalendarMonth, ""), by(bucket.CalendarMonth, "5"), "2026-03-10 12:00:00", "2026-03-31 23:59:59", "2026-04-01 00:00:00"},
		{"a year in place of a month", by(bucket.CalendarMonth, ""), by(bucket.CalendarYear, ""), "2026-03-10 12:00:00", "2026-03-12 00:00:00", "2026-04-01 00:00:00"},
		{"a day in place of a year", by(bucket.CalendarYear, ""), by(bucket.CalendarDay, ""), "2026-03-10 12:00:00", "2026-03-10 13:00:00", "2026-03-11 00:00:00"},
		{"a month in place of a period", limitOf(bucket.Spec{Period: 90 * day}), by(bucket.CalendarMonth, ""), "2026-03-10 12:00:00", "2026-03-12 00:00:00", "2026-04-01 00:00:00"},
		{"a day in place of a month", by(bucket.CalendarMonth, ""), limitOf(bucket.Spec{Period: day}), "2026-03-10 12:00:00", "2026-03-10 23:59:59", "2026-03-11 00:00:00"},
		{"which is over", by(bucket.CalendarMonth, ""), limitOf(bucket.Spec{Period: day}), "2026-03-10 12:00:00", "2026-03-11 00:00:00", ""},
		{"five seconds in place of a day", limitOf(bucket.Spec{Period: day}), limitOf(bucket.Spec{Period: 5 * time.Second}), "2026-03-10 12:00:01", "2026-03-10 12:00:02", "2026-03-10 12:00:05"},
		{"which are over", limitOf(bucket.Spec{Period: day}), limitOf(bucket.Spec{Period: 5 * time.Second}), "2026-03-10 12:00:01", "2026-03-10 12:00:05", ""},
		{"a day in place of a minute", limitOf(bucket.Spec{Period: time.Minute}), limitOf(bucket.Spec{Period: day}), "2026-03-10 12:00:01", "2026-03-10 12:00:02", "2026-03-10 12:01:00"},
		{"a start just begun, of unknown date", by(bucket.CalendarMonth, ""), by(bucket.CalendarMonth, "28 12:00"), "2026-03-28 11:59:59", "2026-03-28 12:00:30", ""},
		{"a start just begun, of a change since", by(bucket.CalendarMonth, ""), movedBy("28 12:00", "2026-03-28 12:00:20"), "2026-03-28 11:59:59", "2026-03-28 12:00:30", "2026-04-01 00:00:00"},
		{"a start to come, of a change before it", by(bucket.CalendarMonth, ""), movedBy("28 12:01", "2026-03-28 12:00:20"), "2026-03-28 11:59:59", "2026-03-28 12:00:30", "2026-03-28 12:01:00"},
		{"which has come since", by(bucket.CalendarMonth, ""), movedBy("28 12:01", "2026-03-28 12:00:20"), "2026-03-28 11:59:59", "2026-03-28 12:01:00", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s bucket.State
			c.before.Charge(&s, at(c.used), bucket.Demand{Cost: 10}, c.before.Decide(&s, at(c.used), bucket.Demand{Cost: 10}))
			d := c.after.Decide(&s, at(c.asked), bucket.Demand{Cost: 1})
			want := time.Duration(0)
			if c.free != "" {
				want = time.Duration(at(c.free)-at(c.asked)) * time.Microsecond
			}
			if d.RetryAfter != want || d.ResetAfter != want || d.Remaining != 0 && c.free != "" {
				t.Errorf("it says %+v, want to wait %s", d, want)
			}
		})
	}
}
