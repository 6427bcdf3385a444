package endpoint_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const calendarLimits = `
domain: api
descriptors:
  - {key: hour, rate_limit: {name: h, requests: 5, calendar: hour, starts: ':15'}}
  - {key: day, rate_limit: {name: d, requests: 5, calendar: day, time_zone: Europe/Berlin}}
  - {key: week, rate_limit: {name: w, requests: 5, calendar: week}}
  - {key: month, rate_limit: {name: m, requests: 5, calendar: month, starts: 15, time_zone: Europe/Berlin}}
  - {key: quarter, rate_limit: {name: q, requests: 5, calendar: quarter}}
  - {key: year, rate_limit: {name: y, requests: 5, calendar: year, starts: 04-06, time_zone: Europe/London}}
  - {key: closed, rate_limit: {name: c, requests: 0, calendar: day}}
`

// Each endpoint says in its own words when windows by calendar end. It is 10.25 s after
// midnight of Thursday, 1 January 2026, in UTC.
func TestCalendarsInAnswers(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, calendarLimits, servertest.WithHeaders("ietf"))
	const day = 24 * time.Hour
	for _, c := range []struct {
		key, name    string
		unit         ratelimitv1.CalendarUnit
		starts, zone string
		reset        string
		length       time.Duration
		envoy        string
	}{
		{"hour", "h", 1, ":15", "UTC", "2026-01-01T00:15:00Z", time.Hour, "HOUR"},
		{"day", "d", 2, "", "Europe/Berlin", "2026-01-01T23:00:00Z", day, "DAY"},
		{"week", "w", 3, "", "UTC", "2026-01-05T00:00:00Z", 7 * day, "WEEK"},
		{"month", "m", 4, "15", "Europe/Berlin", "2026-01-14T23:00:00Z", 31 * day, "MONTH"},
		{"quarter", "q", 5, "", "UTC", "2026-04-01T00:00:00Z", 90 * day, "UNKNOWN"},
		{"year", "y", 6, "04-06", "Europe/London", "2026-04-05T23:00:00Z", 365 * day, "YEAR"},
	} {
		t.Run(c.key, func(t *testing.T) {
			reset, err := time.Parse(time.RFC3339, c.reset)
			if err != nil {
				t.Fatal(err)
			}
			now := d.Clock.Time()
			got := d.Take(c.key + "=x:2").GetLimits()[0]
			want := &ratelimitv1.Limit{
				Name: c.name, Algorithm: ratelimitv1.Algorithm_ALGORITHM_FIXED_WINDOW, Requests: 5, Period: durationpb.New(c.length), Capacity: 5, Remaining: 3, Allowed: true,
				ResetAfter: durationpb.New(reset.Sub(now)), TakenAt: now.UnixMicro(), TakenBy: got.GetTakenBy(),
				ResetAt: timestamppb.New(reset), Calendar: &ratelimitv1.Calendar{Unit: c.unit, TimeZone: c.zone, Starts: c.starts},
			}
			if !proto.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}

			p := d.Fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain": "api", "descriptors": [{"entries": [{"key": "`+c.key+`", "value": "new"}], "cost": 0}]}`))
			var answer struct {
				Limits []struct {
					ResetAt  string
					Calendar map[string]string
				}
			}
			if err := json.Unmarshal([]byte(p.Body), &answer); err != nil || len(answer.Limits) != 1 {
				t.Fatalf("%v in %s", err, p.Body)
			}
			if l := answer.Limits[0]; l.ResetAt != c.reset || l.Calendar["unit"] != c.unit.String() || l.Calendar["timeZone"] != c.zone || l.Calendar["starts"] != c.starts {
				t.Errorf("in JSON: %s", p.Body)
			}

			envoy := d.Ask("api", 1, c.key+"=x")
			if limit := envoy.GetStatuses()[0].GetCurrentLimit(); limit.GetUnit().String() != c.envoy || limit.UnitMultiplier != nil {
				t.Errorf("Envoy is told %s", limit)
			}
			if text := headers(envoy); !strings.Contains(text, fmt.Sprintf(`;w=%.0f`, c.length.Seconds())) {
				t.Errorf("the headers are %s", text)
			}
		})
	}
	if l := d.Take("closed=x").GetLimits()[0]; l.GetAllowed() || l.RetryAfter != nil || l.GetResetAt().AsTime().Format(time.DateOnly) != "2026-01-02" {
		t.Errorf("a limit of nothing says %v", l)
	}
}

// A request's own numbers have a period, and no calendar.
func TestOwnNumbersHaveNoCalendar(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, calendarLimits)
	r := servertest.Taking("day=x:4")
	d.SendTake(r)
	r.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 9, Period: durationpb.New(24 * time.Hour)}
	l := d.SendTake(r).GetLimits()[0]
	if l.GetCalendar() != nil || l.ResetAt != nil || l.GetRemaining() != 5 || l.GetPeriod().AsDuration() != 24*time.Hour {
		t.Errorf("a request's own numbers say %v", l)
	}
	if l := d.Take("day=x:0").GetLimits()[0]; l.GetRemaining() != 1 {
		t.Errorf("of the rule's own limit remain %d", l.GetRemaining())
	}
}
