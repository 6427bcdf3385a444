package assigntext_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
)

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestEndsAreInTheZoneOfTheShell(t *testing.T) {
	t.Parallel()
	// Three days before the clocks go back.
	now := time.Date(2026, 10, 22, 15, 30, 0, 0, berlin(t))
	for text, want := range map[string]string{
		"2026-10-24":           "2026-10-25T00:00:00+02:00",
		"2026-10-25":           "2026-10-26T00:00:00+01:00",
		"2026-12-24 18:00":     "2026-12-24T18:00:00+01:00",
		"2026-12-24T18:00:00Z": "2026-12-24T19:00:00+01:00",
		"90m":                  "2026-10-22T17:00:00+02:00",
		"2d":                   "2026-10-24T15:30:00+02:00",
	} {
		got, err := assigntext.ParseEnd(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v; not %s", text, got.Format(time.RFC3339), err, want)
		}
	}
	for _, bad := range []string{"", "tomorrow", "friday", "18:00", "2026-02-30", "2026-12-24T18:00", "-1h", "18"} {
		if got, err := assigntext.ParseEnd(bad, now); err == nil || !strings.HasPrefix(err.Error(), `found "`+bad+`"; allowed: a span such as 24h`) {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
}

func TestEndsInFilesMeanTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-12-31":                "2027-01-01T00:00:00Z",
		"2026-12-31T18:00:00+02:00": "2026-12-31T16:00:00Z",
	} {
		if got, err := assigntext.ParseMoment(text); err != nil || got.Format(assigntext.MomentLayout) != want {
			t.Errorf("%q is %v, %v; not %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"2h", "2026-12-31 18:00", "2027-02-30"} {
		if got, err := assigntext.ParseMoment(bad); err == nil || !strings.HasPrefix(err.Error(), `found "`+bad+`"; allowed: a moment such as`) {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
}

func TestEndsAreShort(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 22, 15, 30, 0, 0, berlin(t))
	for text, want := range map[string]string{
		"2026-10-22T18:00:00+02:00": "today 18:00",
		"2026-10-22T15:40:05+02:00": "today 15:40:05",
		"2026-10-22T18:00:05+02:00": "today 18:00",
		"2026-10-23T10:00:00Z":      "tomorrow 12:00",
		"2026-10-25T00:00:00+02:00": "2026-10-24",
		"2026-12-24T18:00:00+01:00": "2026-12-24 18:00",
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := assigntext.ShortMoment(at, now); got != want {
			t.Errorf("%s is %q, not %q", text, got, want)
		}
	}
}
