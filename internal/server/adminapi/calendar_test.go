package adminapi_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const calendarLimits = `
domain: api
descriptors:
  - key: tenant
    rate_limits:
      - {name: month, requests: 100000, calendar: month, time_zone: Europe/Berlin}
      - {name: day, requests: 9000, calendar: day, time_zone: Europe/Berlin}
      - {name: second, requests: 100, period: 1s}
  - key: user
    rate_limit: {requests: 5, period: 1m}
  - key: account
    plans:
      free: {name: hour, requests: 5, period: 1h}
      pro: {name: month, requests: 500, calendar: month}
`

// startByCalendar runs a server on limits by calendar, to which is assigned.
func startByCalendar(t *testing.T) (*servertest.Daemon, *servertest.Assignments) {
	t.Helper()
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	return servertest.Start(t, calendarLimits, []func(*server.Options){members, servertest.WithAssignments(f)}...), f
}

// A calendar is a part of an assignment, of the base or of a layer.
func TestCalendarsAreAssigned(t *testing.T) {
	t.Parallel()
	d, _ := startByCalendar(t)
	const path = "/assignment?domain=api&entry=tenant%3Dx"
	for i, step := range []struct{ method, query, body, want string }{
		{"PATCH", "", `{"calendar":{"starts":"15","time_zone":"UTC"},"until":` + at(3) + `}`, "until 3 starts 15 UTC"},
		{"PATCH", "", `{"numbers":[{"limit":"month","requests":50}]}`, "month=50; until 3 starts 15 UTC"},
		{"PATCH", "", `{"calendar":{"starts":"20"},"until":` + at(4) + `}`, "month=50; until 4 starts 20"},
		{"PATCH", "&remove=calendar", `{"unlimited":true}`, "unlimited, month=50"},
		{"PUT", "", `{"calendar":{"time_zone":"Asia/Tokyo"}}`, "starts  Asia/Tokyo"},
		{"DELETE", "&part=calendar", "", ""},
	} {
		p := d.AskAdmin(step.method, path+step.query, "run", step.body)
		if p.Code/100 != 2 {
			t.Fatalf("step %d: %d %s", i, p.Code, p.Body)
		}
		got := ""
		if p := d.AskAdmin("GET", path, "view", ""); p.Code == 200 {
			got = spoken(servertest.ReadMessage[adminv1.Assignment](t, p, 200))
		}
		if got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

func TestWrongCalendarsAreRefused(t *testing.T) {
	t.Parallel()
	d, f := startByCalendar(t)
	for _, c := range []struct{ entry, body, says string }{
		{"tenant%3Dx", `{"calendar":{}}`, "calendar: found neither time_zone nor starts; allowed: one of them, or both"},
		{"tenant%3Dx", `{"calendar":{"starts":"monday"}}`, `calendar.starts: found \"monday\"; allowed for the limits by calendar of the rule tenant: a day of the month, such as 15 or \"15 06:00\", or a time, such as \"06:00\"`},
		{"tenant%3Dx", `{"calendar":{"starts":"the 15th"}}`, `calendar.starts: found \"the 15th\"; allowed: :MM of an hour`},
		{"tenant%3Dx", `{"calendar":{"time_zone":"CET"}}`, `calendar.time_zone: found \"CET\"; allowed: UTC, or a place of the IANA's list; the nearest: Europe/Brussels`},
		{"tenant%3Dx", `{"numbers":[{"limit":"month","requests":5,"period":"86400s"}]}`, `numbers of \"month\", period: found 24h0m0s; allowed: no period beside a calendar`},
		{"tenant%3Dx", `{"numbers":[{"limit":"month","requests":5,"block_for":"0.5s"}]}`, `numbers[0].block_for: found 500ms; allowed: 1s to 30d in whole milliseconds, or none for the limit's own`},
		{"tenant%3Dx", `{"numbers":[{"limit":"month","requests":5,"block_for":"0s"}]}`, `numbers[0].block_for: found 0s; allowed: a time, or leave it out for the limit's own`},
		{"user%3Dx", `{"calendar":{"starts":"15"}}`, "calendar: found one, and the rule user has no limit by calendar"},
		{"path%3Dx", `{"calendar":{"starts":"15"}}`, "entries: found path=x, which match no rule"},
		{"account%3Dx", `{"calendar":{"starts":"monday"}}`, "of the rule account: a day of the month"},
	} {
		if p := d.AskAdmin("PATCH", "/assignment?domain=api&entry="+c.entry, "run", c.body); p.Code != 400 || !strings.Contains(p.Body, c.says) {
			t.Errorf("%s %s: %d %s, want %s", c.entry, c.body, p.Code, p.Body, c.says)
		}
	}
	if n := len(f.Recorded()); n != 0 {
		t.Errorf("%d changes were made", n)
	}
	if p := d.AskAdmin("PATCH", "/assignment?domain=api&entry=account%3Dx", "run", `{"calendar":{"starts":"15"}}`); p.Code != 201 {
		t.Errorf("for a plan that may come: %d %s", p.Code, p.Body)
	}
}

// Rules and explanations say the windows in words and as moments. It is 1 January 2026.
func TestCalendarsAreExplained(t *testing.T) {
	t.Parallel()
	d, _ := startByCalendar(t)
	const month = "100,000 requests a calendar month in Europe/Berlin, next reset 1 February 00:00 CET"
	rules := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api&path=tenant", "view", ""), 200).GetRules()
	l := rules[0].GetLimits()[0]
	if l.GetText() != month || l.GetNextReset().AsTime().Format("2006-01-02T15") != "2026-01-31T23" || l.GetCalendar().GetUnit().String() != "CALENDAR_UNIT_MONTH" ||
		l.GetCalendar().GetTimeZone() != "Europe/Berlin" || rules[0].GetLimits()[2].GetCalendar() != nil {
		t.Errorf("the rule says %v", rules[0])
	}
	if p := d.Get("admin", "/rlconfig"); !strings.Contains(p.Body, month) {
		t.Errorf("the table is %s", p.Body)
	}
	d.AskAdmin("PATCH", "/assignment?domain=api&entry=tenant%3Dx", "run", `{"calendar":{"starts":"15","time_zone":"UTC"},"until":`+at(3)+`}`)
	const take = `{"take":{"domain":"api","descriptors":[{"entries":[{"key":"tenant","value":"x"}],"cost":"200000"}]}}`
	p := d.AskAdmin("POST", "/explain", "help", take)
	for _, want := range []string{
		`"source":"SOURCE_ASSIGNMENT"`, `"applies":true`,
		`"text":"100,000 requests a calendar month from day 15 in UTC, next reset 15 January 00:00 UTC"`,
	} {
		if !strings.Contains(p.Body, want) {
			t.Errorf("%d %s, want %s", p.Code, p.Body, want)
		}
	}
}
