package adminapi_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// subjectQuery is the query of a subject such as "tenant=acme,route=/".
func subjectQuery(subject string) string {
	q := url.Values{"domain": {"api"}}
	for _, e := range strings.Split(subject, ",") {
		q.Add("entry", e)
	}
	return q.Encode()
}

// What no rule is for is made with a warning, and with strict it is refused.
func TestChangesThatHitNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, subject, body string
		idle, hint          string
	}{
		{
			"a misspelt key", "tennant=mallory", `{"blocked":true}`,
			"no rule is for descriptors that begin with tennant=mallory: a block denies only requests that send one anyway",
			"no descriptor here has the key tennant; did you mean tenant (", // as explain says
		},
		{
			"another order", "route=/,tenant=acme", `{"blocked":true}`,
			"no rule is for descriptors that begin with route=/,tenant=acme: ",
			"no descriptor here has the key route; did you mean tenant / route (",
		},
		{
			"a rule that begins otherwise", "route=/", `{"blocked":true}`,
			"no rule is for descriptors that begin with route=/: ",
			"no descriptor here has the key route; did you mean tenant / route (",
		},
		{
			"more than a rule has", "user=x,route=/", `{"blocked":true}`,
			"no rule is for descriptors that begin with user=x,route=/: ",
			") has a limit, but the descriptor goes on with route=/",
		},
		{"what is unlimited already", "user=free", `{"unlimited":true}`, "the rule user=free is unlimited already", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, f := startAssigning(t)
			at := "/assignment?" + subjectQuery(c.subject)
			for _, method := range []string{"PUT", "PATCH"} {
				if p := d.AskAdmin(method, at+"&strict=true", "run", c.body); p.Code != 400 || !strings.Contains(p.Body, `{"error":"`+c.idle) || !strings.Contains(p.Body, c.hint) {
					t.Errorf("strict %s: %d %s, want %s ... %s", method, p.Code, p.Body, c.idle, c.hint)
				}
			}
			dry := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", at+"&dry_run=true", "run", c.body), 201).GetChanges()[0]
			if n := len(f.Recorded()); n != 0 || len(dry.GetWarnings()) == 0 {
				t.Errorf("%d records of what was refused, and %v of what would be done", n, dry)
			}
			made := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", at, "run", c.body), 201).GetChanges()[0]
			if w := made.GetWarnings(); len(w) == 0 || !strings.HasPrefix(w[0], c.idle) || !strings.Contains(strings.Join(w, "\n"), c.hint) {
				t.Errorf("it is made, and the warnings are %q", w)
			}
		})
	}
}

// Of a request's changes strict refuses those that do nothing, and no others.
func TestStrictRefusesOneByOne(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	block := func(subject string) *adminv1.PutAssignment {
		return &adminv1.PutAssignment{Assignment: &adminv1.Assignment{Domain: "api", Entries: servertest.Taking(subject).Descriptors[0].Entries, Blocked: true}}
	}
	request := &adminv1.PutAssignmentsRequest{Strict: true, Puts: []*adminv1.PutAssignment{
		block("user=x"), block("uzer=x"), block("tenant=acme"), block("trial=t"), block("user=Free"),
	}}
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "run"), servertest.Patience)
	defer cancel()
	r, err := d.Admin(nil).PutAssignments(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		refused bool
		warning string
	}{
		{}, {true, "no rule is for descriptors that begin with uzer=x"}, {}, {}, // the last is the beginning of a rule
		{},
	} {
		c := r.GetChanges()[i]
		if refused := c.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED; refused != want.refused || (want.warning == "") != (len(c.GetWarnings()) == 0) ||
			want.warning != "" && !strings.HasPrefix(c.GetWarnings()[0], want.warning) {
			t.Errorf("change %d: got %v, want %+v", i, c, want)
		}
	}
	if n := f.Table().Len(); n != 4 {
		t.Errorf("%d are blocked, want 4", n)
	}
}

// What is not valid for want of a rule says what may have been meant.
func TestRefusalsHaveHints(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	for _, c := range []struct{ subject, body, hint string }{
		{"usr=x", `{"unlimited":true}`, "which match no rule; numbers, calendar and unlimited are for the descriptor of these very entries; no descriptor here has the key usr; "},
		{"trial=t", `{"numbers":[{"requests":5}]}`, "trial=t is only the beginning of a rule, such as trial / "},
		{"tennant=acme", `{"plan":"pro"}`, "no descriptor here has the key tennant; did you mean tenant ("},
	} {
		if p := d.AskAdmin("PUT", "/assignment?"+subjectQuery(c.subject), "run", c.body); p.Code != 400 || !strings.Contains(p.Body, c.hint) {
			t.Errorf("%s: %d %s, want %s", c.subject, p.Code, p.Body, c.hint)
		}
	}
	if p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[{"key":"uesr","value":"x"}],"strict":true}`); p.Code != 400 || !strings.Contains(p.Body, "no descriptor here has the key uesr; did you mean user (") {
		t.Errorf("a reset: %d %s", p.Code, p.Body)
	}
}

// The end of what is not there says so where no rule is for it either.
func TestEndsThatEndNothing(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const idle = "this changes nothing: nothing is assigned to tennant=acme, and no rule is for descriptors that begin with it"
	const hint = "no descriptor here has the key tennant; did you mean tenant ("
	for _, method := range []string{"DELETE", "PATCH"} {
		ask := func(subject string) []string {
			t.Helper()
			at, body := "/assignment?"+subjectQuery(subject), ""
			if method == "PATCH" {
				at, body = at+"&remove=terms&strict=true", "{}"
			}
			p := d.AskAdmin(method, at, "run", body)
			if method == "DELETE" {
				return servertest.ReadMessage[adminv1.DeleteAssignmentResponse](t, p, 200).GetChange().GetWarnings()
			}
			return servertest.ReadMessage[adminv1.PatchAssignmentsResponse](t, p, 200).GetChanges()[0].GetWarnings()
		}
		if w := ask("tennant=acme"); len(w) != 2 || w[0] != idle || !strings.HasPrefix(w[1], hint) {
			t.Errorf("%s: the warnings are %q", method, w)
		}
		if w := ask("tenant=acme"); len(w) != 0 {
			t.Errorf("%s of what a rule is for: %q", method, w)
		}
		f.Put(assign.Change{
			Subject: assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "tennant", Value: "acme"}}}, Set: []assign.Layer{{Terms: assign.Terms{Plan: "pro"}}},
		})
		if w := ask("tennant=acme"); len(w) != 0 {
			t.Errorf("%s of what is there: %q", method, w)
		}
	}
}

// A block of what no rule is for holds where a request sends it all the same; in a domain
// that denies such descriptors anyway, the warning says that.
func TestBlocksWithoutARuleDoWhatTheWarningSays(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	if !d.Take("other=x").GetAllowed() {
		t.Error("without a block it is denied")
	}
	servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, d.AskAdmin("PUT", "/assignment?"+subjectQuery("other=x"), "run", `{"blocked":true}`), 201)
	if d.Take("other=x,more=y").GetAllowed() {
		t.Error("it is not blocked")
	}
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	denying := servertest.Start(t, strings.Replace(adminLimits, "domain: api\n", "domain: api\nunmatched: deny\n", 1), members, servertest.WithAssignments(f))
	made := servertest.ReadMessage[adminv1.PutAssignmentsResponse](t, denying.AskAdmin("PUT", "/assignment?"+subjectQuery("other=x"), "run", `{"blocked":true}`), 201).GetChanges()[0]
	if w := made.GetWarnings(); len(w) == 0 || !strings.Contains(w[0], "a request that sends one anyway is denied already") {
		t.Errorf("the warnings are %q", w)
	}
}

func TestResetOfWhatWasNotCounted(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	client := d.Admin(nil)
	reset := func(subject string, strict bool) (*adminv1.ResetResponse, error) {
		ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "help"), servertest.Patience)
		defer cancel()
		return client.Reset(ctx, &adminv1.ResetRequest{Domain: "api", Entries: servertest.Taking(subject).Descriptors[0].Entries, Strict: strict})
	}
	const none = "nothing is counted for user=Free: burst, daily are full"
	if _, err := reset("user=Free", true); status.Code(err) != codes.FailedPrecondition || !strings.HasPrefix(status.Convert(err).Message(), none) {
		t.Errorf("strict: %v", err)
	}
	if n := len(f.Recorded()); n != 0 {
		t.Errorf("%d records of a reset of nothing", n)
	}
	if p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[{"key":"user","value":"x"}],"strict":true}`); p.Code != 400 || !strings.Contains(p.Body, "nothing is counted for user=x") {
		t.Errorf("in JSON: %d %s", p.Code, p.Body)
	}
	r, err := reset("user=Free", false)
	if err != nil || !strings.HasPrefix(strings.Join(r.GetWarnings(), "; "), none) || len(f.Recorded()) != 1 {
		t.Errorf("all the same: %v, %v, and %d records", r, err, len(f.Recorded()))
	}
	d.Take("user=x")
	if r, err := reset("user=x", true); err != nil || len(r.GetWarnings()) > 0 || len(f.Recorded()) != 2 {
		t.Errorf("of what was counted: %v, %v", r, err)
	}
	if _, err := reset("user=x", true); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("again: %v", err)
	}
}
