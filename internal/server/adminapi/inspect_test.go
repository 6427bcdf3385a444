package adminapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// bothWays calls a method over gRPC and in JSON with the token help, and returns what
// both answer.
func bothWays[Q, A proto.Message](d *servertest.Daemon, call func(context.Context, Q) (A, error), path string, q Q) A {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(servertest.WithToken(context.Background(), "help"), servertest.Patience)
	defer cancel()
	got, err := call(ctx, q)
	if err != nil {
		d.T.Fatal(err)
	}
	body, err := protojson.Marshal(q)
	if err != nil {
		d.T.Fatal(err)
	}
	again := got.ProtoReflect().New().Interface()
	p := d.AskAdmin("POST", path, "help", string(body))
	if p.Code != 200 {
		d.T.Fatalf("in JSON: %d %s", p.Code, p.Body)
	}
	if err := protojson.Unmarshal([]byte(p.Body), again); err != nil {
		d.T.Fatal(err)
	}
	if !proto.Equal(again, got) {
		d.T.Fatalf("in JSON: %v\nover gRPC: %v", again, got)
	}
	return got
}

func explain(d *servertest.Daemon, descriptors ...string) *adminv1.ExplainResponse {
	d.T.Helper()
	client := d.Admin(nil)
	return bothWays(d, func(ctx context.Context, q *adminv1.ExplainRequest) (*adminv1.ExplainResponse, error) {
		return client.Explain(ctx, q)
	}, "/explain", &adminv1.ExplainRequest{Take: servertest.Taking(descriptors...)})
}

func inspect(d *servertest.Daemon, descriptor string) *adminv1.ExplainedDescriptor {
	d.T.Helper()
	client := d.Admin(nil)
	return bothWays(d, func(ctx context.Context, q *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
		return client.Inspect(ctx, q)
	}, "/inspect", &adminv1.InspectRequest{Domain: "api", Entries: servertest.Taking(descriptor).Descriptors[0].Entries}).GetDescriptor_()
}

// wantLeft compares what remains of a descriptor's limits.
func wantLeft(t *testing.T, d *adminv1.ExplainedDescriptor, want map[string]uint64) {
	t.Helper()
	if len(d.GetLimits()) != len(want) {
		t.Errorf("got %v, want %v", d.GetLimits(), want)
	}
	for _, l := range d.GetLimits() {
		if left, ok := want[l.GetLimit().GetName()]; !ok || left != l.GetRemaining() {
			t.Errorf("%q has %d left, want %v", l.GetLimit().GetName(), l.GetRemaining(), want)
		}
	}
}

func TestExplainTellsRuleAssignmentAndVerdict(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	put := func(at, body string) {
		t.Helper()
		servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", "/assignment?domain=api&entry="+at, "run", body), 201)
	}
	put("tenant=acme", `{"plan":"pro","reason":"paid"}`)
	if p := d.AskAdmin("PATCH", "/assignment?domain=api&entry=tenant=evil", "run", `{"blocked":true,"until":"2026-01-01T00:01:10Z"}`); p.Code != 201 {
		t.Fatalf("%d %s", p.Code, p.Body)
	}
	for range 3 {
		x := explain(d, "tenant=acme")
		e := x.GetDescriptors()[0]
		if !x.GetDomainKnown() || !x.GetAllowed() || x.DeniedByDescriptor != nil || x.GetDegraded() {
			t.Errorf("got %v", x)
		}
		if e.GetRule().GetPath() != "tenant" || e.GetPlan() != "pro" || e.GetVerdict() != adminv1.Verdict_VERDICT_ALLOWED || e.GetReached().GetPath() != "tenant" {
			t.Errorf("got %v", e)
		}
		if a := e.GetAssignments(); len(a) != 1 || !a[0].GetApplies() ||
			a[0].GetAssignment().GetReason() != "paid" || a[0].GetAssignment().GetMadeBy() != "operator-1" {
			t.Errorf("got %v", a)
		}
		wantLeft(t, e, map[string]uint64{"hour": 9, "second": 4})
	}
	// It has taken nothing.
	for i := range 4 {
		if !d.Take("tenant=acme").GetAllowed() {
			t.Fatalf("take %d is denied", i)
		}
	}
	x := explain(d, "tenant=acme")
	if x.GetAllowed() || x.DeniedByDescriptor == nil || x.GetDeniedByDescriptor() != 0 || x.DeniedByLimit == nil || x.GetDeniedByLimit() != 1 ||
		x.GetRetryAfter().AsDuration() != 750*time.Millisecond || x.GetDescriptors()[0].GetVerdict() != adminv1.Verdict_VERDICT_DENIED {
		t.Errorf("got %v", x)
	}
	if d.Take("tenant=acme").GetAllowed() {
		t.Error("it says that it would be denied, and it is not")
	}
	// Nor has it counted anything.
	rule := servertest.ReadMessage[adminv1.GetRuleResponse](t, d.AskAdmin("GET", "/rules?domain=api&path=tenant", "view", ""), 200).GetRules()[0]
	if rule.GetAllowed() != 4 || rule.GetDenied() != 1 {
		t.Errorf("%d allowed and %d denied, want 4 and 1", rule.GetAllowed(), rule.GetDenied())
	}

	x = explain(d, "user=y", "tenant=evil,route=/")
	if x.GetAllowed() || x.GetDeniedByDescriptor() != 1 || x.DeniedByLimit != nil || x.GetRetryAfter().AsDuration() != 59750*time.Millisecond {
		t.Errorf("of a blocked tenant: got %v", x)
	}
	e := x.GetDescriptors()[1]
	if e.GetVerdict() != adminv1.Verdict_VERDICT_BLOCKED || e.GetRule().GetPath() != "tenant / route" || len(e.GetAssignments()) != 1 ||
		!e.GetAssignments()[0].GetApplies() || !e.GetAssignments()[0].GetAssignment().GetTemporary()[0].GetBlocked() {
		t.Errorf("of a blocked tenant: got %v", e)
	}
	if d.Take("tenant=evil,route=/").GetAllowed() {
		t.Error("it is not blocked")
	}
	x = explain(d, "nothing=x")
	if !x.GetAllowed() || x.GetDescriptors()[0].GetVerdict() != adminv1.Verdict_VERDICT_UNMATCHED_ALLOWED || x.GetDescriptors()[0].Rule != nil || x.GetDescriptors()[0].GetMiss() != adminv1.Miss_MISS_KEY {
		t.Errorf("without a rule: got %v", x)
	}
}

func TestInspectShowsStates(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	for range 3 {
		d.Take("user=x")
	}
	for range 2 {
		got := inspect(d, "user=x")
		wantLeft(t, got, map[string]uint64{"burst": 7, "daily": 2})
		if got.GetVerdict() != adminv1.Verdict_VERDICT_ALLOWED || got.GetRule().GetPath() != "user" || got.GetLimits()[0].GetResetAfter().AsDuration() != 300*time.Millisecond {
			t.Errorf("got %v", got)
		}
	}
	wantLeft(t, inspect(d, "user=y"), map[string]uint64{"burst": 10, "daily": 5})
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "help"), servertest.Patience)
	defer cancel()
	_, err := d.Admin(nil).Inspect(ctx, &adminv1.InspectRequest{Domain: "apu", Entries: []*ratelimitv1.Entry{{Key: "user"}}})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "domain: ") {
		t.Errorf("of another domain: %v", err)
	}
	if p := d.AskAdmin("POST", "/inspect", "help", `{"domain":"apu","entries":[{"key":"user"}]}`); p.Code != 404 || !strings.Contains(p.Body, `{"error":"domain: `) {
		t.Errorf("of another domain in JSON: %d %s", p.Code, p.Body)
	}
}

func TestResetMakesASubjectFresh(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", "/assignment?domain=api&entry=tenant=acme", "run", `{"plan":"pro"}`), 201)
	takes := func(descriptor string) (n int) {
		t.Helper()
		for n < 20 && d.Take(descriptor).GetAllowed() {
			n++
		}
		return n
	}
	for descriptor, want := range map[string]int{"user=x": 5, "user=y": 5, "tenant=acme": 4} {
		if n := takes(descriptor); n != want {
			t.Fatalf("%s: %d are allowed, want %d", descriptor, n, want)
		}
	}
	before := len(f.Recorded())
	client := d.Admin(nil)
	reset := func(limit *string, reason, descriptor string) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "help"), servertest.Patience)
		defer cancel()
		r, err := client.Reset(ctx, &adminv1.ResetRequest{Domain: "api", Entries: servertest.Taking(descriptor).Descriptors[0].Entries, Limit: limit, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetLimits()
	}
	daily := "daily"
	if limits := reset(&daily, "ticket 1", "user=x"); strings.Join(limits, " ") != "daily" {
		t.Errorf("of one limit: %q", limits)
	}
	wantLeft(t, inspect(d, "user=x"), map[string]uint64{"burst": 5, "daily": 5})
	if n := takes("user=x"); n != 5 {
		t.Errorf("after the reset of one limit %d are allowed", n)
	}
	p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[{"key":"user","value":"x"}],"reason":"ticket 2"}`)
	if r := servertest.ReadMessage[adminv1.ResetResponse](t, p, 200); strings.Join(r.GetLimits(), " ") != "burst daily" {
		t.Errorf("of all limits: %v", r)
	}
	wantLeft(t, inspect(d, "user=x"), map[string]uint64{"burst": 10, "daily": 5})
	wantLeft(t, inspect(d, "user=y"), map[string]uint64{"burst": 5, "daily": 0})
	if limits := reset(nil, "", "tenant=acme"); strings.Join(limits, " ") != "hour second" {
		t.Errorf("of a tenant with a plan: %q", limits)
	}
	wantLeft(t, inspect(d, "tenant=acme"), map[string]uint64{"hour": 9, "second": 4})

	audit := servertest.ReadMessage[adminv1.ListAuditResponse](t, d.AskAdmin("GET", "/audit?domain=api&entry=user=x", "view", ""), 200).GetRecords()
	if len(audit) != 2 {
		t.Fatalf("got %v", audit)
	}
	for i, want := range []struct{ limits, reason string }{{"burst daily", "ticket 2"}, {"daily", "ticket 1"}} {
		if r := audit[i]; r.GetKind() != adminv1.AuditKind_AUDIT_KIND_RESET || r.GetMadeBy() != "support-1" || strings.Join(r.GetLimits(), " ") != want.limits ||
			r.GetReason() != want.reason || r.Before != nil || r.After != nil || !r.GetTime().AsTime().Equal(d.Clock.Time()) {
			t.Errorf("record %d: got %v", i, r)
		}
	}
	if n := len(f.Recorded()) - before; n != 3 {
		t.Errorf("there are %d records of 3 resets", n)
	}
	if lines := d.Log.Lines("level=INFO", "limits reset", "by=support-1", "domain=api", "entries=\"user=x\"", `reason="ticket 1"`); len(lines) != 1 {
		t.Errorf("the log has of the first reset %s, of all %s", lines, d.Log.Lines("limits reset"))
	}
}

func TestResetsOfNothingAreRefused(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	d.Take("user=x")
	client := d.Admin(nil)
	for _, c := range []struct {
		body, says string
		code       codes.Code
	}{
		{`{"domain":"apu","entries":[{"key":"user","value":"x"}]}`, `domain: found "apu"; there is none of this name (api?)`, codes.InvalidArgument},
		{`{"domain":"api","entries":[{"key":"usr","value":"x"}],"strict":true}`, "no rule is for the descriptor usr=x, so it has no limit to reset; no descriptor here has the key usr; did you mean user (", codes.FailedPrecondition},
		{`{"domain":"api","entries":[{"key":"user","value":"x"}],"limit":"dayly"}`,
			`limit: found "dayly", which the rule user does not have; allowed: "burst", "daily"`, codes.InvalidArgument},
		{`{"domain":"api","entries":[{"key":"user","value":"x"}],"limit":""}`, `limit: found "", which the rule user does not have`, codes.InvalidArgument},
		{`{"domain":"api","entries":[{"key":"user","value":"free"}],"strict":true}`, "the rule user=free is unlimited, so it has no limit to reset", codes.FailedPrecondition},
		{`{"domain":"api","entries":[{"key":"tenant","value":"x"}],"limit":"day"}`,
			`limit: found "day", which the rule tenant does not have; allowed: "hour", "second"`, codes.InvalidArgument},
		{`{"entries":[{"key":"user","value":"x"}]}`, "domain: found an empty text; allowed: the name of a domain", codes.InvalidArgument},
		{`{"domain":"api"}`, "entries: found 0; allowed: 1 to 16", codes.InvalidArgument},
		{`{"domain":"api","entries":[{"key":"user","value":"x"}],"reason":"` + strings.Repeat("r", 257) + `"}`,
			"reason: found 257 bytes; allowed: at most 256", codes.InvalidArgument},
		{`{"domain":"api","entries":[{"key":"user","value":"x"}],"reason":"\u0007"}`, `reason: found "\a"; allowed: `, codes.InvalidArgument},
	} {
		q := new(adminv1.ResetRequest)
		if err := protojson.Unmarshal([]byte(c.body), q); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "help"), servertest.Patience)
		if _, err := client.Reset(ctx, q); status.Code(err) != c.code || !strings.HasPrefix(status.Convert(err).Message(), c.says) {
			t.Errorf("%s: %v, want %s", c.body, err, c.says)
		}
		cancel()
		if p := d.AskAdmin("POST", "/reset", "help", c.body); p.Code != 400 || !strings.HasPrefix(p.Body, `{"error":"`) {
			t.Errorf("%s: %d %s", c.body, p.Code, p.Body)
		}
	}
	// Without strict it is done, as far as it can be, and is no change.
	for _, body := range []string{`{"domain":"api","entries":[{"key":"usr","value":"x"}]}`, `{"domain":"api","entries":[{"key":"user","value":"free"}]}`} {
		if p := d.AskAdmin("POST", "/reset", "help", body); p.Code != 200 || !strings.Contains(p.Body, `"limits":[]`) || !strings.Contains(p.Body, "so it has no limit to reset") {
			t.Errorf("%s: %d %s", body, p.Code, p.Body)
		}
	}
	const good = `{"domain":"api","entries":[{"key":"user","value":"x"}]}`
	f.Fails = true
	if p := d.AskAdmin("POST", "/reset", "help", good); p.Code != 503 || !strings.Contains(p.Body, "the store is away") {
		t.Errorf("where the store is away: %d %s", p.Code, p.Body)
	}
	f.Fails = false
	if p := d.AskAdmin("POST", "/reset", "view", good); p.Code != 403 || !strings.Contains(p.Body, `to reset takes the role support, and \"viewer-1\" has the role viewer`) {
		t.Errorf("a viewer: %d %s", p.Code, p.Body)
	}
	if n := len(f.Recorded()); n != 0 {
		t.Errorf("there are %d records", n)
	}
	wantLeft(t, inspect(d, "user=x"), map[string]uint64{"burst": 9, "daily": 4})
}

// A reset is atomic, so it forgets a bounded number of states. Of a subject with more
// one limit at a time is reset.
func TestResetsOfManyStatesAreRefused(t *testing.T) {
	t.Parallel()
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n  - key: tenant\n    plan: p0\n    plans:\n")
	for i := range 100 {
		fmt.Fprintf(&limits, "      p%d: [{name: a%d, requests: 5, period: 1h}, {name: b%d, requests: 5, period: 1h}, {name: c%d, requests: 5, period: 1h}]\n", i, i, i, i)
	}
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, limits.String(), members, servertest.WithAssignments(f))
	d.Take("tenant=x")
	const all = `{"domain":"api","entries":[{"key":"tenant","value":"x"}]`
	if p := d.AskAdmin("POST", "/reset", "help", all+"}"); p.Code != 400 ||
		!strings.Contains(p.Body, "limit: found none for a subject with 300 states, over all plans, where a reset forgets at most 200 together; allowed: the name of one limit (a0, b0, ") {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	wantLeft(t, inspect(d, "tenant=x"), map[string]uint64{"a0": 4, "b0": 4, "c0": 4})
	if p := d.AskAdmin("POST", "/reset", "help", all+`,"limit":"a0"}`); p.Code != 200 {
		t.Errorf("of one limit: %d %s", p.Code, p.Body)
	}
	wantLeft(t, inspect(d, "tenant=x"), map[string]uint64{"a0": 5, "b0": 4, "c0": 4})
}

// A daemon that keeps no assignments explains all the same.
func TestWithoutAssignmentsRequestsAreExplained(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, adminLimits, members)
	if x := explain(d, "tenant=acme"); !x.GetAllowed() || x.GetDescriptors()[0].GetPlan() != "free" || len(x.GetDescriptors()[0].GetAssignments()) != 0 {
		t.Errorf("got %v", x)
	}
	wantLeft(t, inspect(d, "user=x"), map[string]uint64{"burst": 10, "daily": 5})
	if p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[{"key":"user","value":"x"}]}`); p.Code != 501 {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}
