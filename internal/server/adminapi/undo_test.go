package adminapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Undo takes back the last change of a subject with all that it replaced, and nothing of
// what came before; a second one takes back the first.
func TestUndoTakesBackTheLastChange(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const x = "/assignment?domain=api&entry=tenant%3Dx"
	undo := func(more string) servertest.Page {
		return d.AskAdmin("POST", "/assignment/undo", "run", `{"domain":"api","entries":[{"key":"tenant","value":"x"}]`+more+`}`)
	}
	now := func() string {
		p := d.AskAdmin("GET", x, "view", "")
		if p.Code == 404 {
			return ""
		}
		return spoken(servertest.ReadMessage[adminv1.Assignment](t, p, 200))
	}
	if p := undo(""); p.Code != 412 || !strings.Contains(p.Body, `there is no record of a change of tenant=x in the domain \"api\", so there is none to undo`) {
		t.Errorf("of nothing: %d %s", p.Code, p.Body)
	}
	undone := ""
	for i, step := range []struct{ method, query, body, want string }{
		{"PATCH", "", `{"plan":"pro","reason":"contract"}`, "plan pro"},
		{"PATCH", "", `{"numbers":[{"limit":"hour","requests":50}],"until":` + at(2) + `}`, "plan pro; until 2 hour=50"},
		{"PATCH", "", `{"numbers":[{"limit":"hour","requests":9}],"blocked":true}`, "blocked, hour=9, plan pro; until 2 hour=50"},
		{"PATCH", "&remove=temporary&remove=block", `{}`, "hour=9, plan pro"},
		{"DELETE", "", "", ""},
	} {
		if p := d.AskAdmin(step.method, x+step.query, "run", step.body); p.Code/100 != 2 || now() != step.want {
			t.Fatalf("step %d: %d %s, it is %q", i, p.Code, p.Body, now())
		}
		if p := undo(`,"dry_run":true`); p.Code != 200 || now() != step.want {
			t.Errorf("step %d, a dry run: %d %s, it is %q", i, p.Code, p.Body, now())
		}
		if p := undo(`,"reason":"wrong customer"`); p.Code != 200 || now() != undone {
			t.Errorf("step %d, undone: %d %s, it is %q, want %q", i, p.Code, p.Body, now(), undone)
		}
		if last := f.Recorded()[0]; last.By != "operator-1" || last.Reason != "wrong customer" || last.Undoes != f.Recorded()[1].ID {
			t.Errorf("step %d: the record is %+v", i, last)
		}
		if p := undo(""); p.Code != 200 || now() != step.want {
			t.Errorf("step %d, redone: %d %s, it is %q, want %q", i, p.Code, p.Body, now(), step.want)
		}
		undone = step.want
	}
}

func TestWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const x = "/assignment?domain=api&entry=tenant%3Dx"
	undo := func() servertest.Page {
		return d.AskAdmin("POST", "/assignment/undo", "run", `{"domain":"api","entries":[{"key":"tenant","value":"x"}]}`)
	}
	d.AskAdmin("PATCH", x, "run", `{"blocked":true,"until":`+at(1)+`}`)
	d.Clock.Move(time.Hour)
	if p := undo(); p.Code != 412 || !strings.Contains(p.Body, "the last change is over: nothing is assigned any more") {
		t.Errorf("of what has ended: %d %s", p.Code, p.Body)
	}
	d.AskAdmin("PATCH", x, "run", `{"plan":"pro"}`)
	d.AskAdmin("POST", "/reset", "run", `{"domain":"api","entries":[{"key":"tenant","value":"x"}]}`)
	if p := undo(); p.Code != 412 || !strings.Contains(p.Body, `the last change of tenant=x, by \"operator-1\" at 2026-01-01T01:00:10Z, was a reset`) {
		t.Errorf("of a reset: %d %s", p.Code, p.Body)
	}
	if p := d.AskAdmin("POST", "/assignment/undo", "run", `{"domain":"api"}`); p.Code != 400 || !strings.Contains(p.Body, "entries: found 0; allowed: 1 to 16") {
		t.Errorf("without entries: %d %s", p.Code, p.Body)
	}
}
