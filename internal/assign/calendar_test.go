package assign_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

func calendar(t *testing.T, unit bucket.CalendarUnit, starts, name string) bucket.Calendar {
	t.Helper()
	z, err := zone.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s, units := bucket.ParseStarts(starts)
	if starts != "" && !slices.Contains(units, unit) {
		t.Fatalf("%q starts no %s", starts, unit)
	}
	return bucket.Calendar{Unit: unit, Starts: s, Zone: z}
}

// A calendar says where the windows of the limits begin that it fits, until it ends.
func TestCalendarOfLimits(t *testing.T) {
	t.Parallel()
	month, week, period := calendar(t, bucket.CalendarMonth, "20", "UTC"), calendar(t, bucket.CalendarWeek, "sunday", "UTC"), bucket.Calendar{}
	for _, c := range []struct {
		said                  assign.Calendar
		wantMonth, wantOfWeek bucket.Calendar
	}{
		{assign.Calendar{Starts: "15", TimeZone: "Europe/Berlin"}, calendar(t, bucket.CalendarMonth, "15", "Europe/Berlin"), calendar(t, bucket.CalendarWeek, "sunday", "Europe/Berlin")},
		{assign.Calendar{Starts: "1"}, calendar(t, bucket.CalendarMonth, "", "UTC"), week},
		{assign.Calendar{Starts: "monday"}, month, calendar(t, bucket.CalendarWeek, "", "UTC")},
		{assign.Calendar{TimeZone: "Asia/Tokyo"}, calendar(t, bucket.CalendarMonth, "20", "Asia/Tokyo"), calendar(t, bucket.CalendarWeek, "sunday", "Asia/Tokyo")},
		{assign.Calendar{Starts: "of a later version", TimeZone: "Mars/Olympus"}, month, week},
	} {
		temporary := assign.Layer{Terms: assign.Terms{Calendar: c.said}, Until: 100}
		again, err := assign.Decode(assign.Encode(&assign.Assignment{Subject: subject("d", "a=b"), Layers: []assign.Layer{temporary}}))
		if err != nil {
			t.Fatal(err)
		}
		again.Base.Calendar = assign.Calendar{Starts: "of a later version"}
		held := assign.Hold(again)
		if got := held.CalendarOf(month, 99); got != c.wantMonth {
			t.Errorf("%s: a month is %s, want %s", c.said, got, c.wantMonth)
		}
		if got := held.CalendarOf(week, 99); got != c.wantOfWeek {
			t.Errorf("%s: a week is %s, want %s", c.said, got, c.wantOfWeek)
		}
		if held.CalendarOf(period, 99) != period || held.CalendarOf(month, 100) != month {
			t.Errorf("%s: a limit without a calendar, or after its end, has another", c.said)
		}
		again.Base.Calendar, again.Layers = c.said, nil
		if held := assign.Hold(again); held.CalendarOf(month, 100) != c.wantMonth || held.CalendarOf(period, 100) != period {
			t.Errorf("%s: of a base, a month is %s, want %s", c.said, held.CalendarOf(month, 100), c.wantMonth)
		}
	}
}

// What a change says must be known; what is stored may be of a later version.
func TestChangesOfCalendarsAreChecked(t *testing.T) {
	t.Parallel()
	for want, said := range map[string]assign.Calendar{
		"":                        {Starts: "04-01", TimeZone: "UTC"},
		"calendar.starts: found":  {Starts: "first"},
		"nearest: Europe/Berlin":  {TimeZone: "europe/berlin"},
		"calendar.time_zone":      {TimeZone: strings.Repeat("x", 1<<20)},
		"at most 256":             {Starts: strings.Repeat("1", 257)},
		"without control charact": {Starts: "15\n"},
	} {
		c := assigntest.Set(assigntest.Subject("d", "a"), assign.Terms{Calendar: said}, 0)
		err := c.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000) {
			t.Errorf("%.100v: %.1000v, want %q", said, err, want)
		}
	}
}
