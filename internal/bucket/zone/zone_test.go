package zone_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

func TestEveryNameIsAZone(t *testing.T) {
	names := zone.Names()
	if len(names) < 400 || !slices.IsSorted(names) {
		t.Fatalf("%d names", len(names))
	}
	for _, name := range names {
		l, err := zone.Load(name)
		if err != nil || l.String() != name {
			t.Errorf("%s is loaded as %v, %v", name, l, err)
		}
		if again, _ := zone.Load(name); again != l {
			t.Errorf("%s is another zone the second time", name)
		}
	}
}

func TestZonesAreThoseOfTheData(t *testing.T) {
	for name, want := range map[string]string{
		"UTC":                 "2027-01-15T08:00:00Z",
		"Europe/Berlin":       "2027-01-15T09:00:00+01:00",
		"Asia/Kathmandu":      "2027-01-15T13:45:00+05:45",
		"Pacific/Apia":        "2027-01-15T21:00:00+13:00",
		"America/Sao_Paulo":   "2027-01-15T05:00:00-03:00",
		"Australia/Lord_Howe": "2027-01-15T19:00:00+11:00",
	} {
		l, err := zone.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Unix(1_800_000_000, 0).In(l).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestOtherNamesAreErrorsWithTheNearestOnes(t *testing.T) {
	for name, want := range map[string][]string{
		"":                         nil,
		"Local":                    nil,
		"CET":                      {"Europe/Brussels"},
		"MET":                      {"Europe/Brussels"},
		"EST5EDT":                  {"America/New_York"},
		"US/Eastern":               {"America/New_York"},
		"EST":                      {"America/Coral_Harbour", "America/Panama"},
		"Japan":                    {"Asia/Tokyo"},
		"Etc/UTC":                  {"UTC"},
		"utc":                      {"UTC"},
		"GMT":                      {"UTC"},
		"Etc/GMT+5":                nil,
		"europe/berlin":            {"Europe/Berlin"},
		"Berlin":                   {"Europe/Berlin"},
		"new york":                 {"America/New_York"},
		"Europe/Berln":             {"Europe/Berlin"},
		"Erope/Brlin":              {"Europe/Berlin"},
		"../../etc/passwd":         nil,
		"Europe/Berlin\x00":        {"Europe/Berlin"},
		"Europe/":                  nil,
		"Europe":                   nil,
		"+01:00":                   nil,
		strings.Repeat("a", 1<<20): nil,
	} {
		_, err := zone.Load(name)
		var unknown *zone.UnknownError
		if !errors.As(err, &unknown) || len(err.Error()) > 300 {
			t.Errorf("%.80q: %.400v", name, err)
			continue
		}
		if !slices.Equal(unknown.Near, want) {
			t.Errorf("%.80q: the nearest are %q, want %q", name, unknown.Near, want)
		}
		for _, near := range unknown.Near {
			if _, err := zone.Load(near); err != nil {
				t.Errorf("%.80q: the nearest is no zone: %v", name, err)
			}
		}
	}
}

func TestVersionNamesTheData(t *testing.T) {
	release, sum, found := strings.Cut(zone.Version(), "-")
	if !found || len(release) != 5 || !strings.HasPrefix(release, "20") || len(sum) != 8 {
		t.Errorf("the version is %q", zone.Version())
	}
}
