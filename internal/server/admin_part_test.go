package server_test

import (
	"fmt"
	"sync"
	"testing"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// A block stands beside a plan: neither takes the other away.
func TestBlockAndPlanStandBesideEachOther(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at = "/assignment?domain=api&entry=account%3Dx"
	blocked := func() bool { return !d.take("account=x:0").GetAllowed() }
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
		if p := d.askAdmin(step.method, at+step.query, "run", step.body); p.code/100 != 2 {
			t.Fatalf("step %d: %d %s", i, p.code, p.body)
		}
		if blocked() != step.blocked {
			t.Errorf("step %d: blocked %t", i, blocked())
		}
		p := d.askAdmin("GET", at, "view", "")
		if step.plan == "" && !step.blocked {
			if p.code != 404 {
				t.Errorf("step %d: %d %s", i, p.code, p.body)
			}
			continue
		}
		if m := read[adminv1.Assignment](t, p, 200); m.GetPlan() != step.plan || m.GetBlocked() != step.blocked {
			t.Errorf("step %d: %v", i, m)
		}
	}
	if n := len(f.recorded()); n != 10 { // two steps ended nothing
		t.Errorf("%d records", n)
	}
	if p := d.askAdmin("DELETE", at+"&part=all", "run", ""); p.code != 400 {
		t.Errorf("an unknown part: %d %s", p.code, p.body)
	}
}

// Whoever assigns plans and whoever blocks at the same time lose nothing of each other.
func TestPartsDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	d, _ := startAssigning(t)
	const rounds = 20
	var writers sync.WaitGroup
	client := d.admin(nil)
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
				response, err := client.PutAssignments(with(t.Context(), "run"), &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: asked(i)}}})
				if err != nil || response.GetChanges()[0].GetAfter() == nil {
					t.Errorf("%v, error %v", response, err)
				}
			}
		})
	}
	writers.Wait()
	if m := read[adminv1.Assignment](t, d.askAdmin("GET", "/assignment?domain=api&entry=account%3Dx", "view", ""), 200); m.GetPlan() != "pro" || !m.GetBlocked() {
		t.Errorf("got %v", m)
	}
}
