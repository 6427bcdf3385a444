package adminapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// spoken says an assignment in short, its moments in hours of the day.
func spoken(m *adminv1.Assignment) string {
	var parts []string
	add := func(text string, until *timestamppb.Timestamp) {
		if until != nil {
			text += fmt.Sprintf(" until %d", until.AsTime().Hour())
		}
		parts = append(parts, text)
	}
	if m.GetBlocked() {
		add("blocked", m.BlockedUntil)
	}
	if m.GetUnlimited() {
		add("unlimited", m.UnlimitedUntil)
	}
	for _, n := range m.GetNumbers() {
		add(fmt.Sprintf("%s=%d", n.GetLimit(), n.GetRequests()), n.Until)
	}
	if c := m.GetCalendar(); c != nil {
		add(strings.TrimSpace("starts "+c.GetStarts()+" "+c.GetTimeZone()), c.Until)
	}
	if m.GetPlan() != "" {
		add("plan "+m.GetPlan(), m.PlanUntil)
	}
	if m.Until != nil {
		parts = append(parts, fmt.Sprintf("all until %d", m.GetUntil().AsTime().Hour()))
	}
	return strings.Join(parts, ", ")
}

// at is a moment of the first day, as JSON.
func at(hour int) string { return fmt.Sprintf(`"2026-01-01T%02d:00:00Z"`, hour) }

// The rest of a domain has no entries, and loses parts alone. What is there stays.
func TestRestOfADomain(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	f.Put(servertest.Blocking("x"))
	for _, tc := range []struct {
		patch, wrong string
	}{
		{patch: `"assignment":{"domain":"api"},"remove":["PART_TERMS","PART_BLOCK"]`},
		{patch: `"assignment":{"domain":"gone"},"remove_limits":["hour"]`},
		{patch: `"assignment":{"domain":""},"remove":["PART_BLOCK"]`, wrong: "domain: "},
		{patch: `"assignment":{"domain":"api"}`, wrong: "rest_of_domain: "},
		{patch: `"assignment":{"domain":"api"},"remove":["PART_BLOCK"],"if_match":"none"`, wrong: "rest_of_domain: "},
		{patch: `"assignment":{"domain":"api","plan":"pro"},"remove":["PART_BLOCK"]`, wrong: "rest_of_domain: "},
		{patch: `"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}]},"remove":["PART_BLOCK"]`, wrong: "rest_of_domain: "},
	} {
		body := `{"patches":[{"rest_of_domain":true,` + tc.patch + `}]}`
		c := servertest.ReadMessage[adminv1.PatchAssignmentsResponse](t, d.AskAdmin("PATCH", "/assignments", "run", body, "Content-Type", "application/json"), 200).GetChanges()[0]
		want := adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED
		if tc.wrong != "" {
			want = adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED
		}
		if c.GetOutcome() != want || !strings.HasPrefix(c.GetError(), tc.wrong) || tc.wrong == "" && c.GetError() != "" {
			t.Errorf("%s: %v, want %v, %q", tc.patch, c, want, tc.wrong)
		}
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("%d assignments are in force, want 1", n)
	}
}

// A patch changes the parts that it names, each with the end that is given, and a put
// says the whole but the block.
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
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":50}],"until":` + at(2) + `}`, want: "hour=50 until 2, plan pro"},
		{method: "PATCH", body: `{"numbers":[{"limit":"hour","requests":50,"until":` + at(2) + `}]}`, want: "hour=50 until 2, plan pro", unchanged: true},
		{method: "PATCH", body: `{"numbers":[{"limit":"second","requests":5}],"until":` + at(3) + `}`, want: "hour=50 until 2, second=5 until 3, plan pro"},
		{method: "PATCH", body: `{"unlimited":true,"unlimited_until":` + at(1) + `}`, want: "unlimited until 1, hour=50 until 2, second=5 until 3, plan pro"},
		{method: "PATCH", body: `{"blocked":true,"until":` + at(4) + `}`, want: "blocked until 4, unlimited until 1, hour=50 until 2, second=5 until 3, plan pro"},
		{method: "PATCH", query: "&remove_limit=second&remove=unlimited", body: `{}`, want: "blocked until 4, hour=50 until 2, plan pro"},
		{method: "PATCH", query: "&remove=unlimited", body: `{}`, want: "blocked until 4, hour=50 until 2, plan pro", unchanged: true},
		{method: "PATCH", query: "&remove=plan", body: `{"numbers":[{"limit":"hour","requests":60}]}`, want: "blocked until 4, hour=60"},
		{method: "PUT", body: `{"plan":"free","until":` + at(6) + `}`, want: "blocked until 4, plan free until 6, all until 6"},
		{method: "PUT", body: `{"blocked":true,"until":` + at(7) + `}`, want: "blocked until 7, plan free until 6, all until 6"},
		{method: "DELETE", query: "&part=numbers", want: "blocked until 7, plan free until 6, all until 6", unchanged: true},
		{method: "DELETE", query: "&part=plan", want: "blocked until 7"},
		{method: "PATCH", query: "&remove=block", body: `{"unlimited":true}`, want: "unlimited"},
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

// Another number until tomorrow takes nothing else from a customer, and when it ends the
// customer has what was there before.
func TestAnotherNumberUntilTomorrowLeavesThePlan(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const path = "/assignment?domain=api&entry=tenant%3Dx"
	admitted := func() (n int) {
		for range 20 {
			if d.Take("tenant=x").GetAllowed() {
				n++
			}
		}
		return n
	}
	for _, body := range []string{
		`{"plan":"pro"}`, `{"numbers":[{"limit":"second","requests":6}],"until":` + at(1) + `}`, `{"unlimited":true,"until":"2026-01-01T00:00:20Z"}`,
	} {
		if p := d.AskAdmin("PATCH", path, "run", body); p.Code/100 != 2 {
			t.Fatalf("%d %s", p.Code, p.Body)
		}
	}
	if n := admitted(); n != 20 {
		t.Errorf("unlimited: %d pass", n)
	}
	d.Clock.Move(20 * time.Second)
	if n := admitted(); n != 6 {
		t.Errorf("with another number %d pass", n)
	}
	d.Clock.Move(time.Hour)
	if n := admitted(); n != 4 { // a second, of 9 an hour
		t.Errorf("when it has ended %d pass", n)
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
		{"&remove=plans", `{}`, `remove: found \"plans\"; allowed: block, calendar, numbers, plan, terms, unlimited`},
		{"&remove=plan", `{"until":` + at(2) + `}`, "until: found it without a part that it would end"},
		{"&remove=plan", `{"plan_until":` + at(2) + `}`, "plan_until: found it without plan"},
		{"", `{"numbers":[{"limit":"hours","requests":1}]}`, `found the limit \"hours\", which the rule tenant (plan pro) does not have`},
		// It is of the plan that the customer has, which the patch removes.
		{"&remove=plan", `{"numbers":[{"limit":"second","requests":1}]}`, `found the limit \"second\", which the rule tenant (plan free) does not have`},
		{"", `{"numbers":[{"limit":"hour"},{"limit":"hour"}]}`, `the limit \"hour\" twice`},
		{"", `{"plan":"pro","plan_until":"2025-01-01T00:00:00Z"}`, "plan_until: found 2025-01-01T00:00:00Z; allowed: a moment to come"},
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

// A change that daemons of an older version could not read is refused, and names them.
func TestOldDaemonsAreNamed(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	f.Old = []string{"web-1:8081", "web-2:8081"}
	p := d.AskAdmin("PATCH", "/assignment?domain=api&entry=tenant%3Dx", "run", `{"plan":"pro"}`)
	if p.Code != 400 || !strings.Contains(p.Body, "cannot be read by web-1:8081, web-2:8081, of an older version; upgrade these first") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}

// A block stands beside a plan: neither takes the other away.
func TestBlockAndPlanStandBesideEachOther(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at = "/assignment?domain=api&entry=account%3Dx"
	blocked := func() bool { return !d.Take("account=x:0").GetAllowed() }
	for i, step := range []struct {
		method, query, body string
		plan                string
		blocked             bool
	}{
		{"PUT", "", `{"plan":"pro","until":"2026-01-01T01:00:00Z"}`, "pro", false},
		{"PUT", "", `{"blocked":true,"until":"2026-01-01T02:00:00Z","reason":"abuse"}`, "pro", true},
		{"PUT", "", `{"plan":"free"}`, "free", true},
		{"DELETE", "&part=terms", "", "", true},
		{"PUT", "", `{"plan":"pro"}`, "pro", true},
		{"DELETE", "&part=block&reason=over", "", "pro", false},
		{"DELETE", "&part=block", "", "pro", false},
		{"PUT", "", `{"plan":"free","blocked":true}`, "free", true},
		{"DELETE", "", "", "", false},
		{"DELETE", "&part=block", "", "", false},
		{"PUT", "", `{"blocked":true}`, "", true},
		{"DELETE", "&part=block", "", "", false},
	} {
		if p := d.AskAdmin(step.method, at+step.query, "run", step.body); p.Code/100 != 2 {
			t.Fatalf("step %d: %d %s", i, p.Code, p.Body)
		}
		if blocked() != step.blocked {
			t.Errorf("step %d: blocked %t", i, blocked())
		}
		p := d.AskAdmin("GET", at, "view", "")
		if step.plan == "" && !step.blocked {
			if p.Code != 404 {
				t.Errorf("step %d: %d %s", i, p.Code, p.Body)
			}
			continue
		}
		if m := servertest.ReadMessage[adminv1.Assignment](t, p, 200); m.GetPlan() != step.plan || m.GetBlocked() != step.blocked {
			t.Errorf("step %d: %v", i, m)
		}
	}
	if n := len(f.Recorded()); n != 10 { // two steps ended nothing
		t.Errorf("%d records", n)
	}
	if p := d.AskAdmin("DELETE", at+"&part=all", "run", ""); p.Code != 400 {
		t.Errorf("an unknown part: %d %s", p.Code, p.Body)
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
