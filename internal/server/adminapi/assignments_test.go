package adminapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const adminLimits = `
domain: api
hash_tag: tenant
descriptors:
  - key: user
    rate_limits:
      - {name: burst, requests: 10, period: 1s}
      - {name: daily, unit: day, requests_per_unit: 5, algorithm: sliding_log}
  - {key: account, plans: {free: {requests: 1, period: 1s}, pro: {requests: 10, period: 1s}}, plan: free}
  - {key: user, value: free, rate_limit: {unlimited: true}}
  - key: tenant
    plans:
      free: {name: hour, requests: 2, period: 1h, algorithm: fixed_window}
      pro:
        - {name: hour, requests: 9, period: 1h, algorithm: fixed_window}
        - {name: second, requests: 4, period: 1s, algorithm: fixed_window}
    plan: free
    descriptors:
      - {key: route, plans: {free: {requests: 1, period: 1h}, pro: {unlimited: true}}}
  - key: trial
    descriptors:
      - {key: route, rate_limit: {requests: 5, period: 1m, burst: 7}, shadow_mode: true}
`

// startAssigning runs a server on adminLimits.
func startAssigning(t testing.TB, change ...func(*server.Options)) (*servertest.Daemon, *servertest.Assignments) {
	t.Helper()
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	return servertest.Start(t, adminLimits, append([]func(*server.Options){members, servertest.WithAssignments(f)}, change...)...), f
}

func TestAdminShowsDomainsAndRules(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	f.Put(servertest.Blocking("x"))
	d.Ask("api", 1, "user=y")
	domains := servertest.ReadMessage[adminv1.ListDomainsResponse](t, d.AskAdmin("GET", "/domains", "view", ""), 200)
	if len(domains.GetDomains()) != 1 || domains.GetFingerprint() != d.Live.Rules().Fingerprint() {
		t.Fatalf("got %v", domains)
	}
	if got := domains.GetDomains()[0]; got.GetName() != "api" || got.GetRules() != 6 || got.GetHashTag() != "tenant" || got.GetAssignments() != 1 ||
		!slices.Equal(got.GetKeys(), []string{"user", "account", "tenant", "trial"}) || got.GetPlace().GetFile() != d.File || got.GetPlace().GetLine() != 2 {
		t.Errorf("got %v", got)
	}
	rules := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api", "view", ""), 200).GetRules()
	if len(rules) != 6 || rules[0].GetPath() != "user" || rules[0].GetAllowed() != 1 || len(rules[1].GetPlans()) != 2 || !rules[2].GetUnlimited() || !rules[5].GetShadowMode() {
		t.Fatalf("got %v", rules)
	}
	matched := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api&entry=account%3Dx", "view", ""), 200).GetRules()
	if len(matched) != 1 || matched[0].GetPath() != "account" || len(matched[0].GetPlans()) != 2 {
		t.Errorf("matched %v", matched)
	}
	if p := d.AskAdmin("GET", "/rules?domain=api&entry=acount%3Dx", "view", ""); p.Code != 404 || !strings.Contains(p.Body, "acount=x, which match no rule") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	one := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api&path="+url.QueryEscape("trial / route"), "view", ""), 200).GetRules()
	if len(one) != 1 || len(one[0].GetLimits()) != 1 {
		t.Fatalf("got %v", one)
	}
	if l := one[0].GetLimits()[0]; l.GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_TOKEN_BUCKET || l.GetRequests() != 5 || l.GetCapacity() != 7 ||
		l.GetPeriod().AsDuration() != time.Minute || l.GetText() != "7 at once, then one every 12s" {
		t.Errorf("got %v", l)
	}
	if l := rules[0].GetLimits()[1]; l.GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_SLIDING_LOG || l.GetName() != "daily" {
		t.Errorf("got %v", l)
	}
	for path, says := range map[string]string{
		"/rules?domain=apy":           `domain: found \"apy\"; there is none of this name (api?)`,
		"/rules?domain=api&path=usre": `path: found \"usre\"; the domain has no rule there (user?)`,
		"/nothing":                    "/admin/v1/openapi.yaml says what there is",
	} {
		if p := d.AskAdmin("GET", path, "view", ""); p.Code != 404 || !strings.Contains(p.Body, says) {
			t.Errorf("%s: %d %s", path, p.Code, p.Body)
		}
	}
}

// A rule with plans is one rule, whose counts are those of its plans.
func TestAdminGroupsPlansAndCountsWhatHasNoRule(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", "/assignment?domain=api&entry=tenant=acme", "run", `{"plan":"pro"}`), 201)
	for _, descriptor := range []string{"tenant=acme", "tenant=acme", "tenant=other", "tenant=other", "tenant=other", "tenant=acme,route=/",
		"tenant=other,route=/", "nothing=x"} { // the last two have no plan and no rule
		d.Take(descriptor)
	}
	rule := func(path string) *adminv1.Rule {
		t.Helper()
		rules := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api&path="+url.QueryEscape(path), "view", ""), 200).GetRules()
		if len(rules) != 1 {
			t.Fatalf("%s: got %v", path, rules)
		}
		return rules[0]
	}
	got := rule("tenant")
	if got.GetPath() != "tenant" || len(got.GetLimits()) != 0 || got.GetUnlimited() || got.GetDefaultPlan() != "free" ||
		len(got.GetPlans()) != 2 || got.GetPlans()[0].GetName() != "free" || len(got.GetPlans()[0].GetLimits()) != 1 ||
		got.GetPlans()[1].GetName() != "pro" || len(got.GetPlans()[1].GetLimits()) != 2 || got.GetPlans()[1].GetLimits()[0].GetRequests() != 9 {
		t.Errorf("got %v", got)
	}
	if got.GetAllowed() != 4 || got.GetDenied() != 1 {
		t.Errorf("%d allowed and %d denied, want 4 and 1", got.GetAllowed(), got.GetDenied())
	}
	if by := rule("tenant (plan pro)"); !proto.Equal(by, got) {
		t.Errorf("by the path that metrics have: got %v", by)
	}
	if got := rule("tenant / route"); got.GetDefaultPlan() != "" || len(got.GetPlans()) != 2 || !got.GetPlans()[1].GetUnlimited() || got.GetAllowed() != 1 {
		t.Errorf("got %v", got)
	}
	domain := servertest.ReadMessage[adminv1.ListDomainsResponse](t, d.AskAdmin("GET", "/domains", "view", ""), 200).GetDomains()[0]
	if domain.GetUnmatched() != adminv1.Unmatched_UNMATCHED_ALLOW || domain.GetUnmatchedCount() != 2 || domain.GetAssignments() != 1 {
		t.Errorf("got %v", domain)
	}
	d.Write(strings.Replace(adminLimits, "domain: api\n", "domain: api\nunmatched: deny\n", 1))
	if err := d.Live.Reload(); err != nil {
		t.Fatal(err)
	}
	if d.Take("tenant=other,route=/").GetAllowed() {
		t.Error("what has no plan is not denied")
	}
	domain = servertest.ReadMessage[adminv1.ListDomainsResponse](t, d.AskAdmin("GET", "/domains", "view", ""), 200).GetDomains()[0]
	if domain.GetUnmatched() != adminv1.Unmatched_UNMATCHED_DENY || domain.GetUnmatchedCount() != 3 {
		t.Errorf("where it is denied: got %v", domain)
	}
}

// A put is refused with a sentence that says what is wrong, and the others of its
// request are made.
func TestWrongAssignmentsAreRefusedOneByOne(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	long := strings.Repeat("x", 257)
	for _, c := range []struct{ put, says string }{
		{`{}`, "domain: found an empty text"},
		{`{"domain":"api"}`, "entries: found 0; allowed: 1 to 16"},
		{`{"domain":"api","entries":[{"value":"x"}]}`, "entries[0].key: found an empty text"},
		{`{"domain":"api","entries":[{"key":"user","value":"` + strings.Repeat("x", 1024) + `"}],"blocked":true}`, "found 1031 bytes; allowed: at most 1024"},
		{`{"domain":"api","entries":[{"key":"user"}]}`, "assignment: found no part to set or to remove"},
		{`{"domain":"api","entries":[{"key":"user"}],"blocked":true,"until":"2027-01-01T00:00:00Z"}`, "until: found one; allowed: none, since a put says what has no end: a patch puts a layer on top"},
		{`{"domain":"api","entries":[{"key":"user"}],"blocked":true,"reason":"` + long + `"}`, "reason: found 257 bytes"},
		{`{"domain":"api","entries":[{"key":"user"}],"plan":"` + long + `"}`, "plan: found 257 bytes"},
		{`{"domain":"api","entries":[{"key":"user"}],"blocked":true,"until":"2025-12-31T00:00:00Z"}`, "until: found 2025-12-31T00:00:00Z; allowed: a moment to come"},
		{`{"domain":"api","entries":[{"key":"user"}],"temporary":[{"blocked":true,"until":"2025-12-31T00:00:00Z"}]}`, "temporary[0].until: found 2025-12-31T00:00:00Z; allowed: a moment to come"},
		{`{"domain":"api","entries":[{"key":"user"}],"temporary":[{"blocked":true}]}`, "temporary[0].until: found none; allowed: a moment to come"},
		{`{"domain":"api","entries":[{"key":"user"}],"temporary":[{"until":"2027-01-01T00:00:00Z"}]}`, "temporary[0]: found no part that would end; allowed: one or more"},
		{`{"domain":"api","entries":[{"key":"user"}],"temporary":[{"plan":"pro","until":"2027-01-01T00:00:00Z"}]}`, `plan: found "pro"; no rule that user=`},
		{`{"domain":"apu","entries":[{"key":"user"}],"blocked":true}`, `domain: found "apu"; there is none of this name (api?)`},
		{`{"domain":"api","entries":[{"key":"tenant"}],"plan":"prp"}`, `plan: found "prp" (pro?); allowed: free, pro`},
		{`{"domain":"api","entries":[{"key":"usr"}],"unlimited":true}`, "entries: found usr=, which match no rule"},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"requests":1}]}`, `numbers: found none with the name of a limit, and those of the rule user have names; allowed: "burst", "daily"`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"brst","requests":1}]}`, `found the limit "brst", which the rule user does not have ("burst"?); allowed: "burst", "daily"`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst"},{"limit":"burst"}]}`, `numbers[1].limit: found the limit "burst" twice`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"daily","requests":1001}]}`, `numbers of "daily", requests: found 1001; allowed: 0 to 1000 for a sliding_log`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst","requests":4503599627370497}]}`, "numbers[0].requests: found 4503599627370497; allowed: 0 to 4503599627370496"},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst","burst":"18446744073709551615"}]}`, "numbers[0].burst: found 9223372036854775807; allowed: 0 to 4503599627370496"},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst","requests":1000000000000000,"period":"2592000s"}]}`,
			`numbers of "burst", requests: found 1000000000000000 in 720h0m0s, which a token_bucket cannot count exactly; allowed: at most 104249991374 requests, or a multiple of 43200, or`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"daily","requests":1,"burst":2}]}`, `numbers of "daily", burst: found 2; allowed: no burst`},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst","requests":1,"period":"0.0001s"}]}`, "numbers[0].period: found 100µs; allowed: 1ms to 366 days"},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"daily","requests":1},{"limit":"burst","period":"0.0001s"}]}`, "numbers[1].period: found 100µs"},
		{`{"domain":"api","entries":[{"key":"user"}],"plan":"pro"}`, `plan: found "pro"; no rule that user= matches, or that is below it, has plans`},
		{`{"domain":"api","entries":[{"key":"tenant","value":"x"},{"key":"route"}],"numbers":[{"requests":1}]}`, "numbers: found them without a plan; the rule tenant / route has no plan for a subject without one, so name one of free, pro beside them"},
		{`{"domain":"api","entries":[{"key":"tenant","value":"x"},{"key":"route"}],"plan":"pro","numbers":[{"requests":1}]}`, "the rule tenant / route (plan pro) is unlimited"},
		{`{"domain":"api","entries":[{"key":"user"}],"numbers":[{"limit":"burst","requests":1,"period":"-1s"}]}`, "numbers[0].period: found "},
		{`{"domain":"api","entries":[{"key":"user","value":"free"}],"numbers":[{"requests":1}]}`, "the rule user=free is unlimited"},
		{`{"domain":"api","entries":[{"key":"user","value":"good"}],"blocked":true}`, "found the domain and entries of an earlier change again"},
	} {
		p := d.AskAdmin("POST", "/assignments", "run",
			`{"puts":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"good"}],"numbers":[{"limit":"burst","requests":3,"period":"2s","burst":4}]}},{"assignment":`+c.put+`}]}`)
		changes := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, p, 200).GetChanges()
		if len(changes) != 2 || changes[0].GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED ||
			changes[1].GetOutcome() != adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED || !strings.Contains(changes[1].GetError(), c.says) {
			t.Errorf("%s: got %v, want %s", c.put, changes, c.says)
		}
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("there are %d", n)
	}
	puts := strings.Repeat(`{},`, 1000) + `{}`
	if p := d.AskAdmin("POST", "/assignments", "run", `{"puts":[`+puts+`]}`); p.Code != 400 || !strings.Contains(p.Body, "puts: found 1001; allowed: 1 to 1000") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	put := func(ifMatch, assignment string) *adminv1.AssignmentChange {
		t.Helper()
		p := d.AskAdmin("POST", "/assignments", "run", `{"dry_run":true,"puts":[{"if_match":"`+ifMatch+`","assignment":{"domain":"api","entries":[{"key":"tenant","value":"x"}],`+assignment+`}}]}`)
		return servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, p, 200).GetChanges()[0]
	}
	if got := put("", `"plan":"pro"`); got.GetOutcome() != adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED || got.GetAfter().GetMadeBy() != "operator-1" {
		t.Errorf("got %v", got)
	}
	blocked := servertest.Blocking("x")
	blocked.Entries[0].Key = "tenant"
	f.Put(blocked)
	reason := `"reason":"` + strings.Repeat("r", 256) + `"`
	for _, c := range []struct {
		ifMatch, assignment string
		want                adminv1.ChangeOutcome
	}{
		{"", `"plan":"pro"`, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED},
		{"1", `"plan":"pro"`, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED},
		{"2", `"plan":"pro"`, adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT},
		{"none", `"plan":"pro"`, adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT},
		{"", `"blocked":true,` + reason, adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED},
		{"", `"blocked":true,"temporary":[{"plan":"pro","until":"2026-02-01T00:00:00Z"}],` + reason, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED},
		{"", `"plan":"none"`, adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED},
	} {
		if got := put(c.ifMatch, c.assignment); got.GetOutcome() != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if len(f.Recorded()) != 1 {
		t.Errorf("there are %d changes", len(f.Recorded()))
	}
	if lines := d.Log.Lines("assignment changed"); len(lines) != 0 { // the test's own is none of the API
		t.Errorf("the log tells of changes: %s", lines)
	}
}

// One assignment over HTTP is a resource with a version.
func TestOneAssignmentHasAVersionOverHTTP(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const at = "/assignment?domain=api&entry=account=a%26b%3Dc"
	const noValue = `entry: found \"tenant\"; allowed: KEY=VALUE, or KEY= for an empty value`
	for _, c := range []struct {
		method, at, body string
		headers          []string
		code             int
		says             string
	}{
		{"GET", at, "", nil, 404, `nothing is assigned to account=`},
		{"PUT", at + "&if_match=1", `{"plan":"pro"}`, nil, 412, "the version that if_match names is not in force"},
		{"PUT", at + "&dry_run=true", `{"plan":"pro"}`, nil, 201, "CREATED"},
		{"PUT", at + "&if_match=none", `{"plan":"pro","reason":"paid"}`, nil, 201, "CREATED"},
		{"PUT", at + "&if_match=none", `{"plan":"pro"}`, nil, 412, "something is assigned already"},
		{"GET", at, "", nil, 200, `"value":"a&b=c"`},
		{"PUT", at + "&if_match=1", `{"plan":"free"}`, nil, 200, "REPLACED"},
		{"PUT", at, `{"plan":"free"}`, []string{"If-Match", `"1"`}, 400, "if-match, if-none-match: found one"},
		{"PUT", at, `{"plan":"none"}`, nil, 400, `plan: found \"none\"`},
		{"PUT", at, `{"domain":"other","plan":"free"}`, nil, 400, "found other domain or entries than in the query"},
		{"PUT", at + "&entry=user%3Dbob", `{"entries":[{"key":"account","value":"a&b=c / user=bob"}],"plan":"free"}`, nil, 400, "found other domain or entries than in the query"},
		{"PUT", at, `{"plam":"free"}`, nil, 400, "no Assignment in protobuf JSON"},
		{"PUT", at, "", []string{"Content-Type", "application/json"}, 400, "no Assignment in protobuf JSON"},
		{"PUT", at, "null", nil, 400, "no Assignment in protobuf JSON"},
		{"PUT", at, "[]", nil, 400, "no Assignment in protobuf JSON"},
		{"PATCH", at, "", []string{"Content-Type", "application/json"}, 400, "no Assignment in protobuf JSON"},
		{"PATCH", at, " ", nil, 400, "no Assignment in protobuf JSON"},
		{"PATCH", at + "&if_match=1", `{"plan":"free"}`, nil, 412, "the version that if_match names is not in force"},
		{"PATCH", at + "&if_match=none", `{"plan":"free"}`, nil, 412, "something is assigned already"},
		{"PATCH", at + "&dry_run=true&if_match=2", `{"unlimited":true}`, nil, 200, "REPLACED"},
		{"DELETE", at + "&if_match=1", "", nil, 412, "the version that if_match names is not in force"},
		{"DELETE", at + "&reason=left&if_match=2", "", nil, 200, "DELETED"},
		{"DELETE", at, "", nil, 200, "UNCHANGED"},
		{"GET", at + "&x=1", "", nil, 400, `found the parameter \"x\"`},
		{"GET", "/assignment?domain=api&domain=b&entry=a", "", nil, 400, "domain: found it 2 times"},
		{"GET", "/assignments?page_size=x", "", nil, 400, "page_size: found"},
		{"GET", "/assignments?page_size=10001", "", nil, 400, "allowed: 1 to 10000, or 0 for 1000"},
		{"GET", "/assignments?page_token=*", "", nil, 400, `{"error":"page_token: found no token of a page; allowed: `},
		{"GET", "/audit?page_token=*", "", nil, 400, `{"error":"page_token: found no token of a page; allowed: `},
		{"GET", "/audit?page_token=YWJj", "", nil, 400, `{"error":"page_token: found no token of a page; allowed: `},
		{"DELETE", at + "&reason=%00", "", nil, 400, `reason: found \"\\x00\"; allowed: `},
		{"GET", "/assignments?blocked=yes", "", nil, 400, "allowed: true or false"},
		{"GET", "/audit?entry=a=b", "", nil, 400, "without a domain"},
		{"PUT", "/assignment?domain=api&entry=tenant&strict=true&dry_run=true", `{"blocked":true}`, nil, 400, noValue},
		{"PATCH", "/assignment?domain=api&entry=tenant=x&entry=tenant", `{"blocked":true}`, nil, 400, noValue},
		{"GET", "/assignment?domain=api&entry=tenant", "", nil, 400, noValue},
		{"DELETE", "/assignment?domain=api&entry=tenant", "", nil, 400, noValue},
		{"GET", "/rules?domain=api&entry=tenant", "", nil, 400, noValue},
		{"GET", "/audit?domain=api&entry=tenant", "", nil, 400, noValue},
		{"PUT", "/assignment?domain=api&entry=tenant=&strict=true&dry_run=true", `{"blocked":true}`, nil, 201, "CREATED"},
		{"GET", "/domains?%zz", "", nil, 400, "the query cannot be read"},
		{"POST", at, "", nil, 405, "allowed at"},
	} {
		p := d.AskAdmin(c.method, c.at, "run", c.body, c.headers...)
		if p.Code != c.code || !strings.Contains(p.Body, c.says) {
			t.Errorf("%s %s %s %s: %d %s", c.method, c.at, c.body, c.headers, p.Code, p.Body)
		}
	}
	wantLine := func(words ...string) {
		t.Helper()
		if lines := d.Log.Lines(append(words, "level=INFO", "assignment changed", "by=operator-1", "domain=api")...); len(lines) != 1 {
			t.Errorf("%d lines say %s", len(lines), words)
		}
	}
	wantLine("outcome=created", "before={}", `\"plan\":\"pro\"`, "reason=paid")
	wantLine("outcome=replaced", `\"plan\":\"pro\"`, `\"plan\":\"free\"`)
	wantLine("outcome=deleted", `\"plan\":\"free\"`, "after={}", "reason=left")
	audit := servertest.ReadMessage[adminv1.ListAuditResponse](t, d.AskAdmin("GET", "/audit?domain=api&page_size=2", "view", ""), 200)
	if len(audit.GetRecords()) != 2 || audit.GetRecords()[0].GetKind() != adminv1.AuditKind_AUDIT_KIND_UNASSIGNED || audit.GetRecords()[0].GetMadeBy() != "operator-1" {
		t.Errorf("got %v", audit)
	}
	rest := servertest.ReadMessage[adminv1.ListAuditResponse](t, d.AskAdmin("GET", "/audit?domain=api&page_token="+audit.GetNextPageToken(), "view", ""), 200)
	if len(rest.GetRecords()) != 1 || rest.GetNextPageToken() != "" || rest.GetRecords()[0].GetAfter().GetPlan() != "pro" {
		t.Errorf("got %v", rest)
	}
}

func TestAssignmentsAreListedInPages(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	for i := range 25 {
		f.Block(fmt.Sprintf("u%02d", i))
	}
	client, token, got := d.Admin(nil), "", 0
	for pages := 1; ; pages++ {
		ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "view"), servertest.Patience)
		r, err := client.ListAssignments(ctx, &adminv1.ListAssignmentsRequest{Domain: "api", Prefix: "user=u", PageSize: 10, PageToken: token})
		cancel()
		if err != nil || r.GetTotal() != 25 {
			t.Fatalf("%v %v", r.GetTotal(), err)
		}
		for _, a := range r.GetAssignments() {
			if want := fmt.Sprintf("u%02d", got); a.GetEntries()[0].GetValue() != want {
				t.Errorf("got %v, want %s", a, want)
			}
			got++
		}
		if token = r.GetNextPageToken(); token == "" {
			if pages != 3 || got != 25 {
				t.Errorf("%d pages with %d", pages, got)
			}
			break
		}
	}
	// A page is shorter than asked for if callers could not read it.
	for i := range 12_000 {
		f.Block(fmt.Sprintf("v%s%05d", strings.Repeat("v", 300), i))
	}
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "view"), servertest.Patience)
	defer cancel()
	r, err := client.ListAssignments(ctx, &adminv1.ListAssignmentsRequest{PageSize: 10_000})
	n := len(r.GetAssignments())
	if err != nil || n < 5000 || n >= 10_000 || r.GetNextPageToken() == "" {
		t.Fatalf("%d %v", n, err)
	}
	// In JSON it is the same page. The next one goes on.
	same := new(adminv1.ListAssignmentsResponse)
	p := d.AskAdmin("GET", "/assignments?page_size=10000", "view", "")
	if err := protojson.Unmarshal([]byte(p.Body), same); err != nil || !proto.Equal(same, r) {
		t.Errorf("in JSON: %d, %d of %d, %v", p.Code, len(same.GetAssignments()), same.GetTotal(), err)
	}
	next, err := client.ListAssignments(ctx, &adminv1.ListAssignmentsRequest{PageSize: 10_000, PageToken: r.GetNextPageToken()})
	if err != nil || len(next.GetAssignments()) == 0 {
		t.Fatalf("the next page has %d, %v", len(next.GetAssignments()), err)
	}
	last, first := r.GetAssignments()[n-1].GetEntries()[0].GetValue(), next.GetAssignments()[0].GetEntries()[0].GetValue()
	var a, b int
	fmt.Sscanf(last[301:], "%05d", &a)
	fmt.Sscanf(first[301:], "%05d", &b)
	if b != a+1 {
		t.Errorf("after %d the next page begins with %d", a, b)
	}
}

// A list that cannot be read to its end is an error, so that no one takes it for whole.
func TestAListThatBreaksOffIsAnError(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	for i := range 600 {
		f.Block(fmt.Sprintf("%04d", i))
	}
	f.FailsAfter = true
	if p := d.AskAdmin("GET", "/audit?page_size=1000", "view", ""); p.Code != 503 || strings.Contains(p.Body, "records") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	f.FailsAfter = false
	all := new(adminv1.ListAuditResponse)
	if p := d.AskAdmin("GET", "/audit?page_size=1000", "view", ""); protojson.Unmarshal([]byte(p.Body), all) != nil || len(all.GetRecords()) != 600 || all.GetNextPageToken() != "" {
		t.Errorf("whole: %d, %d records", p.Code, len(all.GetRecords()))
	}
}

// A page of the longest records is shorter than it may be, so that callers can read it.
func TestPagesOfTheAuditAreNoLongerThanCallersRead(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const records = 1000
	var changes []assign.Change
	for i := range records {
		c := servertest.Blocking(fmt.Sprintf("%04d%s", i%2, strings.Repeat("u", 990)))
		c.Set[0].Reason = fmt.Sprintf("%04d%s", i, c.Set[0].Reason[4:]) // each is a change
		c.Set[0].By = strings.Repeat("b", assign.MaxText)
		changes = append(changes, c)
	}
	if _, err := f.Store.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "view"), servertest.Patience)
	defer cancel()
	request := &adminv1.ListAuditRequest{PageSize: records}
	pages, got := 0, 0
	for {
		r, err := d.Admin(nil).ListAudit(ctx, request) // a client reads 4 MiB
		if err != nil {
			t.Fatal(err)
		}
		pages, got = pages+1, got+len(r.GetRecords())
		if request.PageToken = r.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	if got != records || pages < 2 {
		t.Errorf("%d records on %d pages", got, pages)
	}
}

// A billing system watches with curl.
func TestWatchesTellOfChangesInLines(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+d.Server.Address("admin")+"/admin/v1/assignments/watch?domain=api", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer view")
	response, err := d.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	asynctest.Eventually(t, "the watch", func() bool { return f.Watches.Load() == 1 })
	lines := bufio.NewScanner(response.Body)
	for _, user := range []string{"x", "y"} {
		f.Block(user)
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		record := new(adminv1.AuditRecord)
		if err := protojson.Unmarshal(lines.Bytes(), record); err != nil {
			t.Fatal(err)
		}
		if record.GetAfter().GetEntries()[0].GetValue() != user || !record.GetAfter().GetBlocked() {
			t.Errorf("got %v", record)
		}
	}
	cancel()
	asynctest.Eventually(t, "the watch's end", func() bool { return f.Watches.Load() == 0 })
}

func TestAStoreThatDoesNotAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	f.Fails = true
	for _, p := range []servertest.Page{
		d.AskAdmin("PUT", "/assignment?domain=api&entry=user=x", "run", `{"blocked":true}`),
		d.AskAdmin("DELETE", "/assignment?domain=api&entry=user=x", "run", ""),
		d.AskAdmin("GET", "/audit", "run", ""),
	} {
		if p.Code != 503 || !strings.Contains(p.Body, "the store is away") {
			t.Errorf("%d %s", p.Code, p.Body)
		}
	}
}

// What the store refused for certain is told as such, with the reason.
func TestWhatTheStoreRefusesIsToldWithTheReason(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	f.Refusal = fmt.Errorf("refused by Redis, %w: READONLY You can't write", assign.ErrNothingChanged)
	const says = "refused by Redis, nothing was changed: READONLY You can't write"
	for _, p := range []servertest.Page{
		d.AskAdmin("PUT", "/assignment?domain=api&entry=user=x", "run", `{"blocked":true}`),
		d.AskAdmin("PATCH", "/assignment?domain=api&entry=user=x", "run", `{"blocked":true}`),
		d.AskAdmin("DELETE", "/assignment?domain=api&entry=user=x", "run", ""),
		d.AskAdmin("POST", "/reset", "run", `{"domain":"api","entries":[{"key":"user","value":"x"}]}`),
	} {
		if p.Code != 503 || !strings.Contains(p.Body, says) || strings.Contains(p.Body, "ask again") {
			t.Errorf("%d %s", p.Code, p.Body)
		}
	}
	p := d.AskAdmin("POST", "/assignments", "run", `{"puts":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}],"blocked":true}}]}`)
	if c := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, p, 200).GetChanges()[0]; c.GetOutcome() != adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED || c.GetError() != says || !c.GetTemporary() {
		t.Errorf("got %v", c)
	}
	if lines := d.Log.Lines("assignment changed"); len(lines) > 0 {
		t.Errorf("it is logged as made: %s", lines)
	}
}

// A daemon that is still loading refuses changes for certain, and for a moment.
func TestChangesAreRefusedWhileAssignmentsAreNotLoaded(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t, func(o *server.Options) {
		store, err := filestore.New(filestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Admin.Assignments.(*servertest.Assignments).Store, o.Assigned = store, store.Table()
	})
	const at, many = "/assignment?domain=api&entry=user=x", `{"puts":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}],"blocked":true}}]}`
	p := d.AskAdmin("POST", "/assignments", "run", many)
	c := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, p, 200).GetChanges()[0]
	const says = "the assignments are not loaded yet, so nothing was changed"
	if c.GetOutcome() != adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED || c.GetError() != says || !c.GetTemporary() {
		t.Errorf("got %v", c)
	}
	if p := d.AskAdmin("PATCH", at, "run", `{"blocked":true}`); p.Code != 503 || !strings.Contains(p.Body, says) {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("POST", "/assignments", "run", many), 200)
}

func TestDaemonsAreListed(t *testing.T) {
	t.Parallel()
	alone, _ := startAssigning(t)
	r := servertest.ReadMessage[adminv1.ListDaemonsResponse](t, alone.AskAdmin("GET", "/daemons", "view", ""), 200)
	if len(r.GetDaemons()) != 1 || !r.GetSameRules() || !r.GetDaemons()[0].GetSelf() || r.GetDaemons()[0].GetVersion() != "v0.0.0-test" || r.GetDaemons()[0].GetRules() != alone.Live.Rules().Fingerprint() {
		t.Errorf("got %v", r)
	}
	two, _ := startAssigning(t, func(o *server.Options) {
		o.Admin.Daemons = func(context.Context) ([]fleet.Daemon, string, time.Time, error) {
			return []fleet.Daemon{{ID: "a", Address: "host-a", Rules: "1", HashTags: 32, StateFormat: 1, Reads: []int{1, 2}}, {ID: "b", Address: "host-b", Rules: "2"}}, "b", time.Unix(7, 0), nil
		}
	})
	r = servertest.ReadMessage[adminv1.ListDaemonsResponse](t, two.AskAdmin("GET", "/daemons", "view", ""), 200)
	if len(r.GetDaemons()) != 2 || r.GetSameRules() || r.GetDaemons()[0].GetSelf() || !r.GetDaemons()[1].GetSelf() ||
		r.GetAt().GetSeconds() != 7 || r.GetDaemons()[0].GetHashTags() != 32 || r.GetDaemons()[0].GetStateFormat() != 1 || len(r.GetDaemons()[0].GetReads()) != 2 {
		t.Errorf("got %v", r)
	}
}

func TestWithoutAStoreThereAreNoAssignments(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	for _, path := range []string{"/assignments", "/assignment?domain=api&entry=a=b", "/audit", "/assignments/watch"} {
		if p := d.AskAdmin("GET", path, "", ""); p.Code != 501 || !strings.Contains(p.Body, "keeps no assignments") {
			t.Errorf("%s: %d %s", path, p.Code, p.Body)
		}
	}
}

// A message beyond the bounds is refused before it becomes one.
func TestLargeAdminRequestsAreRefused(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	for name, body := range map[string]string{
		"too many bytes":  `{"puts":[` + strings.Repeat(" ", 16<<20) + `]}`,
		"too many values": `{"puts":[` + strings.Repeat("{},", 200_000) + `{}]}`,
		"too deep":        strings.Repeat(`{"puts":[`, 20),
	} {
		if p := d.AskAdmin("POST", "/assignments", "run", body); p.Code != 400 {
			t.Errorf("%s: %d %.200s", name, p.Code, p.Body)
		}
	}
	large := &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{IfMatch: strings.Repeat("x", 9<<20)}}}
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "run"), servertest.Patience)
	defer cancel()
	if _, err := d.Admin(nil).PutAssignments(ctx, large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("over gRPC: %v", err)
	}
	// What is not for its caller is not read.
	if _, err := d.Admin(nil).PutAssignments(servertest.WithToken(t.Context(), "view"), large); status.Code(err) != codes.PermissionDenied {
		t.Errorf("of a viewer over gRPC: %v", err)
	}
}

// A request whose answer its caller could not read changes nothing.
func TestPutsWhoseAnswerIsTooLongAreNotMade(t *testing.T) {
	t.Parallel()
	limits := "domain: api\ndescriptors:\n- key: user\n  rate_limits:\n"
	var numbers []*adminv1.AssignedNumbers
	for i := range 16 {
		name := fmt.Sprintf("%02d%s", i, strings.Repeat("n", 62))
		limits += "  - {name: " + name + ", requests: 1, period: 1s}\n"
		numbers = append(numbers, &adminv1.AssignedNumbers{Limit: name, Requests: 4_000_000, Burst: 4_000_000})
	}
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	f := servertest.NewAssignments(t)
	d := servertest.Start(t, limits, members, servertest.WithAssignments(f))
	client := d.Admin(nil)
	request := new(adminv1.PutAssignmentsRequest)
	for i := range 1000 { // of the longest kind
		request.Puts = append(request.Puts, &adminv1.PutAssignment{Assignment: &adminv1.Assignment{
			Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: fmt.Sprintf("%04d%s", i, strings.Repeat("v", 1000))}},
			Numbers: numbers, Reason: strings.Repeat("r", 256),
		}})
	}
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "run"), servertest.Patience)
	defer cancel()
	if r, err := client.PutAssignments(ctx, request); err != nil || len(r.GetChanges()) != 1000 {
		t.Fatal(err)
	}
	// To replace them, the answer has each twice.
	if _, err := client.PutAssignments(ctx, request); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "put fewer at once") {
		t.Errorf("got %v", err)
	}
	if len(f.Recorded()) != 1000 {
		t.Errorf("%d changes were made", len(f.Recorded()))
	}
	request.Puts = request.Puts[:500]
	if _, err := client.PutAssignments(ctx, request); err != nil {
		t.Error(err)
	}
}

// newAPI returns the admin API as a server on loopback makes it from its options,
// without a port.
func newAPI(t testing.TB, o server.Options) *adminapi.API {
	t.Helper()
	e := servertest.NewEndpoint(o, "admin")
	api := adminapi.New(adminapi.Options{
		Gate: access.NewGate(o.Admin.Members, true, o.Now), Live: o.Live, Decider: e.Decider, Assignments: o.Admin.Assignments,
		Daemons:  func(context.Context) ([]fleet.Daemon, string, time.Time, error) { return nil, "", o.Now(), nil },
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "test"}, []string{"method", "code"}),
		Panics:   e.Panics, Log: o.Log, Now: o.Now, Stopping: t.Context(),
	})
	t.Cleanup(api.Stop)
	return api
}

// FuzzAdminJSON sends anything to every route. Whatever comes back is JSON.
func FuzzAdminJSON(f *testing.F) {
	members, _, _ := servertest.WithMembers(f, servertest.SomeMembers())
	handler := newAPI(f, servertest.NewOptions(f, adminLimits, members, servertest.WithAssignments(servertest.NewAssignments(f))))
	f.Add("POST", "/assignments", `{"puts":[{"if_match":"none","assignment":{"domain":"api","entries":[{"key":"user"}],"blocked":true}}],"dry_run":true}`)
	f.Add("PUT", "/assignment?domain=api&entry=user=x&dry_run=true", `{"numbers":[{"limit":"burst","period":"1s"}],"temporary":[{"plan":"x","until":"2026-02-01T00:00:00Z"}]}`)
	f.Add("GET", "/rules?domain=api&path=user", "")
	f.Add("GET", "/assignments?prefix=u&page_token=AA", "")
	f.Add("GET", "/audit?domain=api&entry=%ff", "")
	f.Add("DELETE", "/assignment?domain=api&entry==&reason=%00", "")
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.Parse("http://localhost/admin/v1" + target)
		if err != nil || !strings.HasPrefix(u.Path, "/admin/v1/") || strings.HasSuffix(u.Path, "/watch") || strings.HasSuffix(u.Path, "/openapi.yaml") {
			t.Skip()
		}
		r, err := http.NewRequest(method, u.String(), strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer run")
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == 500 || w.Code/100 != 3 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %q: %d %s", method, target, body, w.Code, w.Body)
		}
	})
}
