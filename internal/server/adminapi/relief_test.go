package adminapi_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// The role support may put other numbers on top, within the bounds of what is in force
// without temporary layers, and nothing else.
func TestSupportMayRelieveWithinBounds(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const acme, bob, burst = "/assignment?domain=api&entry=tenant%3Dacme", "/assignment?domain=api&entry=user%3Dbob", "/assignment?domain=api&entry=trial%3D1&entry=route%3D2"
	ask := func(path, body string) servertest.Page {
		return d.AskAdmin("PATCH", path, "help", strings.Replace(body, "UNTIL", `"until":`+at(2), 1))
	}
	for _, body := range []string{`{"plan":"pro","numbers":[{"limit":"hour","requests":100}]}`, `{"numbers":[{"limit":"second","requests":1000}],"until":` + at(5) + `}`} {
		if p := d.AskAdmin("PATCH", acme, "run", body); p.Code/100 != 2 {
			t.Fatalf("%d %s", p.Code, p.Body)
		}
	}
	if p := d.AskAdmin("PATCH", bob, "run", `{"numbers":[{"limit":"burst","requests":20,"period":"2s"}]}`); p.Code/100 != 2 {
		t.Fatalf("%d %s", p.Code, p.Body)
	}
	made := len(f.Recorded())
	for _, c := range []struct{ path, body, found string }{
		{acme, `{"numbers":[{"limit":"hour","requests":201}],UNTIL}`, `201 requests for the limit \"hour\", which has 100`},
		{acme, `{"numbers":[{"limit":"hour","requests":99}],UNTIL}`, `99 requests for the limit \"hour\", which has 100`},
		// The operator's relief is not what counts.
		{acme, `{"numbers":[{"limit":"second","requests":9}],UNTIL}`, `9 requests for the limit \"second\", which has 4`},
		{acme, `{"numbers":[{"limit":"hour","requests":150}]}`, "numbers without an end"},
		{acme, `{"numbers":[{"limit":"hour","requests":150}],"until":"2026-01-02T00:31:00Z"}`, "an end in 1d 1h"},
		{acme, `{"numbers":[{"limit":"hour","requests":150,"period":"60s"}],UNTIL}`, `a period of 1m for the limit \"hour\", which has 1h`},
		{acme, `{"numbers":[{"limit":"hour","requests":150,"block_for":"60s"}],UNTIL}`, `a block_for of 1m for the limit \"hour\", which has another or none`},
		{acme, `{"plan":"pro",UNTIL}`, `the plan \"pro\"`},
		{acme, `{"numbers":[{"limit":"hour","requests":150}],"blocked":true,UNTIL}`, "a block"},
		{acme, `{"unlimited":true,UNTIL}`, "unlimited"},
		{acme + "&remove=temporary", `{}`, "parts to remove"},
		{acme, `{"temporary":[{"numbers":[{"limit":"hour","requests":201}],UNTIL}]}`, `201 requests for the limit \"hour\", which has 100`},
		// Relief with the file's period would be more than twice as much.
		{bob, `{"numbers":[{"limit":"burst","requests":40}],UNTIL}`, `a period of 1s for the limit \"burst\", which has 2s`},
		{burst, `{"numbers":[{"requests":10}],UNTIL}`, ""},
		{burst, `{"numbers":[{"requests":10,"burst":15}],UNTIL}`, "a burst of 15 for the limit without a name, which has 7"},
	} {
		p := ask(c.path, c.body)
		if c.found == "" {
			made++
			if p.Code/100 != 2 {
				t.Errorf("%s: %d %s", c.body, p.Code, p.Body)
			}
			continue
		}
		says := "found " + c.found + `; allowed for \"support-1\", who has the role support: other numbers of limits, for at most 1d, up to 2 times those in force without temporary layers`
		if p.Code != 403 || !strings.Contains(p.Body, says) {
			t.Errorf("%s: %d %s\nwant %s", c.body, p.Code, p.Body, says)
		}
	}
	if n := len(f.Recorded()); n != made {
		t.Errorf("%d changes were made, want %d", n, made)
	}
	for _, c := range []struct{ path, body, want string }{
		{acme, `{"numbers":[{"limit":"hour","requests":200}],UNTIL}`, "hour=100, plan pro; until 5 second=1000; until 2 hour=200"},
		{acme, `{"numbers":[{"limit":"second","requests":8}],UNTIL}`, "hour=100, plan pro; until 5 second=1000; until 2 hour=200; until 2 second=8"},
		{bob, `{"numbers":[{"limit":"burst","requests":40,"period":"2s"}],UNTIL}`, "burst=20; until 2 burst=40"},
	} {
		p := ask(c.path, c.body)
		if m := servertest.ReadMessage[adminv1.PatchAssignmentsResponse](t, p, p.Code).GetChanges(); p.Code/100 != 2 || spoken(m[0].GetAfter()) != c.want {
			t.Errorf("%s: %d %s, want %s", c.body, p.Code, p.Body, c.want)
		}
	}
	if p := ask(acme, `{"numbers":[{"limit":"huor","requests":200}],UNTIL}`); p.Code != 400 || !strings.Contains(p.Body, `which the rule tenant (plan pro) does not have (\"hour\"?)`) {
		t.Errorf("a misspelt limit: %d %s", p.Code, p.Body)
	}
}

// What an operator restricts for a while is not lifted by relief.
func TestSupportMayNotLiftARestriction(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const acme = "/assignment?domain=api&entry=tenant%3Dacme"
	for _, body := range []string{`{"plan":"pro","numbers":[{"limit":"hour","requests":100}]}`, `{"numbers":[{"limit":"hour","requests":10}],"until":` + at(5) + `}`} {
		if p := d.AskAdmin("PATCH", acme, "run", body); p.Code/100 != 2 {
			t.Fatalf("%d %s", p.Code, p.Body)
		}
	}
	p := d.AskAdmin("PATCH", acme, "help", `{"numbers":[{"limit":"hour","requests":150}],"until":`+at(2)+`}`)
	if p.Code != 403 || !strings.Contains(p.Body, `relief for the limit \"hour\", which a temporary layer restricts to 10 requests`) {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}

func TestSupportMayNotRelieveWhereASettingSaysSo(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t, func(o *server.Options) { o.Admin.Relief = adminapi.Relief{} })
	p := d.AskAdmin("PATCH", "/assignment?domain=api&entry=user%3Dbob", "help", `{"numbers":[{"limit":"burst","requests":10}],"until":`+at(2)+`}`)
	if p.Code != 403 || !strings.Contains(p.Body, `to change assignments takes the role operator, and \"support-1\" has the role support`) {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}
