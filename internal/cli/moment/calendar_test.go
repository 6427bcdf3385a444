package moment

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Commands print moments in the shell's time zone, which is not that of who runs the tests.
func init() { time.Local = time.UTC }

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("there are no time zones")
	}
	return zone
}

func TestEndsAreReadAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	// A Thursday, two days before the clocks go back.
	now := time.Date(2026, 10, 22, 15, 30, 0, 0, berlin(t))
	for text, want := range map[string]string{
		"today":                "2026-10-23T00:00:00+02:00",
		"tomorrow":             "2026-10-24T00:00:00+02:00",
		"Tomorrow":             "2026-10-24T00:00:00+02:00",
		"friday":               "2026-10-24T00:00:00+02:00",
		"thu":                  "2026-10-30T00:00:00+01:00",
		"wednesday":            "2026-10-29T00:00:00+01:00",
		"sunday":               "2026-10-26T00:00:00+01:00",
		"18:00":                "2026-10-22T18:00:00+02:00",
		"15:30":                "2026-10-23T15:30:00+02:00",
		"09:00:30":             "2026-10-23T09:00:30+02:00",
		"tomorrow 20:00":       "2026-10-23T20:00:00+02:00",
		"today 15:00":          "2026-10-22T15:00:00+02:00", // past, which is not for it to say
		"Sunday 09:00":         "2026-10-25T09:00:00+01:00",
		"thu 16:00":            "2026-10-29T16:00:00+01:00",
		"2026-10-25":           "2026-10-26T00:00:00+01:00",
		"2026-12-24":           "2026-12-25T00:00:00+01:00",
		"2026-12-24T18:00":     "2026-12-24T18:00:00+01:00",
		"2026-12-24 18:00":     "2026-12-24T18:00:00+01:00",
		"2026-12-24T18:00:00Z": "2026-12-24T19:00:00+01:00",
	} {
		got, err := ParseEnd(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v; not %s", text, got.Format(time.RFC3339), err, want)
		}
	}
	for _, bad := range []string{"", "soon", "yesterday", "24:00", "2026-13-01", "18", "1h", "tomorrow 25:00", "yesterday 18:00", "tomorrow  18:00", "18:00 tomorrow"} {
		if got, err := ParseEnd(bad, now); err == nil || !strings.Contains(err.Error(), "allowed: today, tomorrow, friday") {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
	// What is printed names the zone.
	if got, want := Until(timestamppb.New(now.Add(time.Hour)), now), "2026-10-22T16:30:00+02:00 CEST (1h)"; got != want {
		t.Errorf("it prints %s, not %s", got, want)
	}
}

// Where the clocks go ahead at midnight a day begins at one.
func TestDaysWithoutAMidnight(t *testing.T) {
	t.Parallel()
	havana, err := time.LoadLocation("America/Havana")
	if err != nil {
		t.Skip("there are no time zones")
	}
	now := time.Date(2025, 3, 8, 10, 0, 0, 0, havana) // a Saturday, before the clocks go ahead
	for text, want := range map[string]string{
		"today":          "2025-03-09T01:00:00-04:00",
		"tomorrow":       "2025-03-10T00:00:00-04:00",
		"tomorrow 18:00": "2025-03-09T18:00:00-04:00",
		"sunday 09:00":   "2025-03-09T09:00:00-04:00",
		"2025-03-08":     "2025-03-09T01:00:00-04:00",
		"today 18:00":    "2025-03-08T18:00:00-05:00",
	} {
		got, err := ParseEnd(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v; not %s", text, got.Format(time.RFC3339), err, want)
		}
	}
}

func TestPastIsReadAsPeopleSayIt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 26, 15, 30, 0, 0, berlin(t)) // a Monday
	for text, want := range map[string]string{
		"1h":               "2026-10-26T14:30:00+01:00 2026-10-26T14:30:00+01:00",
		"2d":               "2026-10-24T16:30:00+02:00 2026-10-24T16:30:00+02:00",
		"now":              "2026-10-26T15:30:00+01:00 2026-10-26T15:30:00+01:00",
		"today":            "2026-10-26T00:00:00+01:00 2026-10-27T00:00:00+01:00",
		"yesterday":        "2026-10-25T00:00:00+02:00 2026-10-26T00:00:00+01:00",
		"monday":           "2026-10-26T00:00:00+01:00 2026-10-27T00:00:00+01:00",
		"tue":              "2026-10-20T00:00:00+02:00 2026-10-21T00:00:00+02:00",
		"03:00":            "2026-10-26T03:00:00+01:00 2026-10-26T03:00:00+01:00",
		"18:00":            "2026-10-25T18:00:00+01:00 2026-10-25T18:00:00+01:00",
		"2026-10-01":       "2026-10-01T00:00:00+02:00 2026-10-02T00:00:00+02:00",
		"2026-10-01T02:03": "2026-10-01T02:03:00+02:00 2026-10-01T02:03:00+02:00",
	} {
		got, err := ParsePast(text, now)
		if shown := got.From.Format(time.RFC3339) + " " + got.To.Format(time.RFC3339); err != nil || shown != want {
			t.Errorf("%q is %s, %v; not %s", text, shown, err, want)
		}
	}
	if _, err := ParsePast("tomorrow", now); err == nil {
		t.Error("a log is looked at in the future")
	}
}

// What is spelt well, and is on no calendar or clock, is told as that.
func TestTimesThatThereAreNot(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 26, 15, 30, 0, 0, time.UTC)
	const day, clock = ", and there is no such day; allowed: ", ", and there is no such time of day; allowed: "
	for text, want := range map[string]string{
		"2027-02-30": day, "2027-13-01": day, "2027-02-30T10:00": day, "2027-02-29T10:00:00Z": day, "2027-02-30 10:00:00": day,
		"25:00": clock, "18:60": clock, "09:00:61": clock, "2027-02-28T24:00": clock, "2027-02-28T25:00:00Z": clock,
		"soon": "; allowed: ", "2027-2-3": "; allowed: ",
	} {
		_, end := ParseEnd(text, now)
		_, past := ParsePast(text, now)
		_, moment := Parse(text)
		for what, err := range map[string]error{"an end": end, "the past": past, "a moment of a file": moment} {
			if err == nil || !strings.HasPrefix(err.Error(), "found \""+text+"\""+want) {
				t.Errorf("%s, %q: %v", what, text, err)
			}
		}
	}
	for _, text := range []string{"now", "Yesterday"} {
		if _, err := ParseEnd(text, now); err == nil || !strings.HasPrefix(err.Error(), `found "`+text+`", which is no moment to come; allowed: today`) {
			t.Errorf("%q ends something: %v", text, err)
		}
	}
	if _, err := ParsePast("tomorrow", now); err == nil || !strings.HasPrefix(err.Error(), `found "tomorrow", which is to come; allowed: `) {
		t.Errorf("tomorrow was: %v", err)
	}
}
