package adminapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// spoken says an assignment in short: the base, then each layer with the hour of its end.
func spoken(m *adminv1.Assignment) string {
	var layers []string
	if base := spokenParts(m); base != "" {
		layers = append(layers, base)
	}
	for _, t := range m.GetTemporary() {
		layers = append(layers, fmt.Sprintf("until %d %s", t.GetUntil().AsTime().Hour(), spokenParts(t)))
	}
	return strings.Join(layers, "; ")
}

func spokenParts(m interface {
	GetPlan() string
	GetNumbers() []*adminv1.AssignedNumbers
	GetUnlimited() bool
	GetBlocked() bool
	GetCalendar() *adminv1.AssignedCalendar
}) string {
	var parts []string
	if m.GetBlocked() {
		parts = append(parts, "blocked")
	}
	if m.GetUnlimited() {
		parts = append(parts, "unlimited")
	}
	for _, n := range m.GetNumbers() {
		parts = append(parts, fmt.Sprintf("%s=%d", n.GetLimit(), n.GetRequests()))
	}
	if c := m.GetCalendar(); c != nil {
		parts = append(parts, strings.TrimSpace("starts "+c.GetStarts()+" "+c.GetTimeZone()))
	}
	if m.GetPlan() != "" {
		parts = append(parts, "plan "+m.GetPlan())
	}
	return strings.Join(parts, ", ")
}

// at is a moment of the first day, as JSON.
func at(hour int) string { return fmt.Sprintf(`"2026-01-01T%02d:00:00Z"`, hour) }

// A patch changes the parts that it names, of the base or with an end in a layer on top,
// and a put says the whole base but the block.
func TestPartsAreChangedOneByOne(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const path = "/assignment?domain=api&entry=tenant%3Dx"
	records := 0
	for i, step := range []struct {
		method, query, body string
		code                int
		want                string
		unchanged           bool
	}{
		{method: "PATCH", body: `{"plan":"pro"}`, code: 201, want: "plan pro"},
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":50}],"until":` + at(2) + `}`, want: "plan pro; until 2 hour=50"},
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":50}],"until":` + at(2) + `}`, want: "plan pro; until 2 hour=50", unchanged: true},
		{method: "PATCH", body: `{"numbers":[{"limit":"second","requests":5}],"until":` + at(3) + `}`, want: "plan pro; until 2 hour=50; until 3 second=5"},
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":7}]}`, want: "hour=7, plan pro; until 2 hour=50; until 3 second=5"},
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":60}],"until":` + at(4) + `}`, want: "hour=7, plan pro; until 3 second=5; until 4 hour=60"},
		{method: "PATCH", body: `{"blocked":true,"until":` + at(4) + `}`, want: "hour=7, plan pro; until 3 second=5; until 4 hour=60; until 4 blocked"},
		{method: "PATCH", query: "&remove_limit=hour&remove=unlimited", body: `{}`, want: "plan pro; until 3 second=5; until 4 blocked"},
		{method: "PATCH", query: "&remove=unlimited", body: `{}`, want: "plan pro; until 3 second=5; until 4 blocked", unchanged: true},
		{method: "PUT", body: `{"plan":"free"}`, want: "plan free; until 3 second=5; until 4 blocked"},
		{method: "PUT", body: `{"blocked":true}`, want: "blocked, plan free; until 3 second=5"},
		{method: "DELETE", query: "&part=calendar", want: "blocked, plan free; until 3 second=5", unchanged: true},
		{method: "PUT", body: `{"unlimited":true,"temporary":[{"plan":"pro","until":` + at(5) + `},{"plan":"free","until":` + at(4) + `}]}`,
			want: "blocked, unlimited; until 3 second=5; until 5 plan pro; until 4 plan free"},
		{method: "DELETE", query: "&part=temporary", want: "blocked, unlimited"},
		{method: "PATCH", query: "&remove=block", body: `{"plan":"pro"}`, want: "unlimited, plan pro"},
		{method: "DELETE", query: "&part=terms"},
	} {
		p := d.AskAdmin(step.method, path+step.query, "run", step.body)
		if p.Code != max(200, step.code) {
			t.Fatalf("step %d: %d %s", i, p.Code, p.Body)
		}
		if !step.unchanged {
			records++
		}
		if n := len(f.Recorded()); n != records {
			t.Errorf("step %d: %d records, want %d", i, n, records)
			records = n
		}
		shown := &adminv1.GetAssignmentResponse{Assignment: &adminv1.Assignment{}}
		if p := d.AskAdmin("GET", path, "view", ""); step.want != "" {
			shown.Assignment = servertest.ReadMessage[adminv1.Assignment](t, p, 200)
		} else if p.Code != 404 {
			t.Errorf("step %d: %d %s", i, p.Code, p.Body)
		}
		if got := spoken(shown.GetAssignment()); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

// What people get wrong in a patch they are told.
func TestWrongPatchesAreRefused(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const path = "/assignment?domain=api&entry=tenant%3Dx"
	if p := d.AskAdmin("PUT", path, "run", `{"plan":"pro"}`); p.Code != 201 {
		t.Fatalf("%d %s", p.Code, p.Body)
	}
	for _, c := range []struct{ query, body, says string }{
		{"", `{}`, "assignment: found no part to set or to remove; allowed: one or more of plan, numbers, calendar, unlimited and blocked"},
		{"&remove=plans", `{}`, `remove: found \"plans\"; allowed: block, calendar, numbers, plan, temporary, terms, unlimited`},
		{"&remove=plan", `{"until":` + at(2) + `}`, "until: found it without a part that it would end"},
		{"", `{"plan":"free","until":` + at(2) + `,"temporary":[{"plan":"free","until":` + at(2) + `}]}`, "until: found it beside temporary; allowed: one of the two"},
		{"", `{"numbers":[{"limit":"hours","requests":1}]}`, `found the limit \"hours\", which the rule tenant (plan pro) does not have`},
		// It is of the plan that the customer has, which the patch removes.
		{"&remove=plan", `{"numbers":[{"limit":"second","requests":1}]}`, `found the limit \"second\", which the rule tenant (plan free) does not have`},
		{"", `{"numbers":[{"limit":"hour"},{"limit":"hour"}]}`, `the limit \"hour\" twice`},
		{"", `{"plan":"pro","until":"2025-01-01T00:00:00Z"}`, "until: found 2025-01-01T00:00:00Z; allowed: a moment to come"},
	} {
		if p := d.AskAdmin("PATCH", path+c.query, "run", c.body); p.Code != 400 || !strings.Contains(p.Body, c.says) {
			t.Errorf("%s %s: %d %s, want %s", c.query, c.body, p.Code, p.Body, c.says)
		}
	}
	if n := len(f.Recorded()); n != 1 {
		t.Errorf("%d changes were made", n)
	}
	puts := `{"patches":[{"remove":["PART_PLAN"],"assignment":{"domain":"api","entries":[{"key":"tenant","value":"x"}]}},{"remove":["PART_UNSPECIFIED"]},{"remove":[9]}],"dry_run":true}`
	changes := servertest.ReadMessage[adminv1.PatchAssignmentsResponse](t, d.AskAdmin("PATCH", "/assignments", "run", puts), 200).GetChanges()
	if len(changes) != 3 || changes[0].GetOutcome() != adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED || !strings.Contains(changes[1].GetError(), "remove[0]: found PART_UNSPECIFIED") {
		t.Errorf("got %v", changes)
	}
	if p := d.AskAdmin("PATCH", "/assignments", "run", `{}`); p.Code != 400 || !strings.Contains(p.Body, "patches: found 0; allowed: 1 to 1000") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	if p := d.AskAdmin("PATCH", path, "help", `{"plan":"free"}`); p.Code != 403 {
		t.Errorf("of a caller in support: %d %s", p.Code, p.Body)
	}
}

// Whoever assigns plans and whoever blocks at the same time lose nothing of each other.
func TestPartsDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const rounds = 20
	var writers sync.WaitGroup
	client := d.Admin(nil)
	entries := []*ratelimitv1.Entry{{Key: "account", Value: "x"}}
	for _, asked := range []func(i int) *adminv1.Assignment{
		func(i int) *adminv1.Assignment {
			return &adminv1.Assignment{Domain: "api", Entries: entries, Plan: "pro", Reason: fmt.Sprint(i)}
		},
		func(i int) *adminv1.Assignment {
			return &adminv1.Assignment{Domain: "api", Entries: entries, Blocked: true, Reason: fmt.Sprint(i)}
		},
	} {
		writers.Go(func() {
			for i := range rounds {
				response, err := client.PutAssignments(servertest.WithToken(t.Context(), "run"), &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: asked(i)}}})
				if err != nil || response.GetChanges()[0].GetAfter() == nil {
					t.Errorf("%v, error %v", response, err)
				}
			}
		})
	}
	writers.Wait()
	if m := servertest.ReadMessage[adminv1.Assignment](t, d.AskAdmin("GET", "/assignment?domain=api&entry=account%3Dx", "view", ""), 200); m.GetPlan() != "pro" || !m.GetBlocked() {
		t.Errorf("got %v", m)
	}
}
