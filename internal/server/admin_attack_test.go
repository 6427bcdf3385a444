package server_test

import (
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Many who change what they have read, at once: of each version one wins, and all others
// learn that they have not.
func TestOneOfManyChangesEachVersion(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at, clients, rounds = "/assignment?domain=api&entry=account=x", 64, 10
	p := d.askAdmin("PUT", at, "run", `{"plan":"free"}`)
	for round := range rounds {
		etag := p.header.Get("Etag")
		var won, lost atomic.Int32
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				body := fmt.Sprintf(`{"plan":"pro","reason":"%d of %d"}`, client, round)
				switch answer := d.askAdmin("PUT", at, "run", body, "If-Match", etag); answer.code {
				case 200:
					won.Add(1)
				case 412, 429: // 32 are answered at a time
					lost.Add(1)
				default:
					t.Errorf("%d %s", answer.code, answer.body)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || lost.Load() != clients-1 {
			t.Fatalf("round %d: %d won, %d lost", round, won.Load(), lost.Load())
		}
		p = d.askAdmin("GET", at, "run", "")
	}
	if n := len(f.recorded()); n != 1+rounds {
		t.Errorf("there are %d records", n)
	}
}

// blockedBy reports whether a block denies a take.
func blockedBy(r *ratelimitv1.TakeResponse) bool {
	return !r.GetAllowed() && r.GetLimits()[0].GetName() == "blocked"
}

// At its end an assignment holds no more, whatever the clock does then, until it is
// swept; versions stay those of what is in force.
func TestAClockThatJumpsAtTheEndOfAnAssignment(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at = "/assignment?domain=api&entry=user=x"
	end := d.clock.Time().Add(time.Hour)
	p := d.askAdmin("PUT", at, "run", fmt.Sprintf(`{"blocked":true,"blocked_until":%q}`, end.UTC().Format(time.RFC3339Nano)))
	if p.code != 201 {
		t.Fatalf("%d %s", p.code, p.body)
	}
	etag := p.header.Get("Etag")
	for _, c := range []struct {
		name    string
		moment  time.Time
		blocked bool
	}{
		{"a microsecond before", end.Add(-time.Microsecond), true},
		{"at the end", end, false},
		{"a year later", end.Add(366 * 24 * time.Hour), false},
		{"back before it", end.Add(-time.Second), true},
		{"in 1970", time.UnixMicro(1), true},
		{"at the end again", end, false},
	} {
		d.clock.Set(c.moment.UnixMicro())
		if got := blockedBy(d.take("user=x")); got != c.blocked {
			t.Errorf("%s: blocked %t", c.name, got)
		}
		want := 404
		if c.blocked {
			want = 200
		}
		if p := d.askAdmin("GET", at, "view", ""); p.code != want {
			t.Errorf("%s: %d %s", c.name, p.code, p.body)
		}
	}
	// At the end nothing is in force, so the old version is not either.
	if p := d.askAdmin("PUT", at, "run", `{"unlimited":true}`, "If-Match", etag); p.code != 412 {
		t.Errorf("a change of the version that has ended: %d %s", p.code, p.body)
	}
	if p := d.askAdmin("PUT", at, "run", `{"unlimited":true}`, "If-None-Match", "*"); p.code != 201 {
		t.Errorf("a change where nothing is: %d %s", p.code, p.body)
	}
	d.clock.Set(end.Add(-time.Second).UnixMicro())
	if blockedBy(d.take("user=x")) {
		t.Error("when the clock is set back, a block that was replaced holds again")
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("there are %d assignments", n)
	}
}

// The limits file loses a plan and a limit that are assigned, and has them again.
func TestReloadsChangeWhatIsAssigned(t *testing.T) {
	t.Parallel()
	const withPro = `
domain: api
descriptors:
  - key: tenant
    plans: {free: {name: n, requests: 10, period: 1h}, pro: {name: n, requests: 100, period: 1h}}
    plan: free
  - {key: user, rate_limit: {name: n, requests: 10, period: 1h}}
`
	withoutPro := regexp.MustCompile(`, pro: \{[^}]*\}`).ReplaceAllString(withPro, "")
	f := newAssignments(t)
	members, _, _ := withMembers(t, someMembers())
	d := start(t, withPro, members, withAssignments(f))
	for path, body := range map[string]string{
		"/assignment?domain=api&entry=tenant=x": `{"plan":"pro"}`,
		"/assignment?domain=api&entry=user=x":   `{"numbers":[{"limit":"n","requests":50}]}`,
	} {
		if p := d.askAdmin("PUT", path, "run", body); p.code != 201 {
			t.Fatalf("%d %s", p.code, p.body)
		}
	}
	d.take("tenant=x", "user=x")
	for _, c := range []struct {
		name, limits string
		tenant, user map[string]uint32
	}{
		{"as assigned", withPro, map[string]uint32{"n": 99}, map[string]uint32{"n": 49}},
		{"without the plan", withoutPro, map[string]uint32{"n": 9}, map[string]uint32{"n": 49}},
		{"with another name", withoutPro[:len(withoutPro)-len("n, requests: 10, period: 1h}}\n")] + "m, requests: 10, period: 1h}}\n",
			map[string]uint32{"n": 9}, map[string]uint32{"m": 10}},
		{"with the plan as numbers", "domain: api\ndescriptors: [{key: tenant, rate_limit: {name: n, requests: 20, period: 1h}}, {key: user, rate_limit: {unlimited: true}}]\n",
			map[string]uint32{"n": 19}, nil},
		{"as before", withPro, map[string]uint32{"n": 99}, map[string]uint32{"n": 49}},
	} {
		d.reload(c.limits)
		wantLeft(t, d.inspect("tenant=x"), c.tenant)
		wantLeft(t, d.inspect("user=x"), c.user)
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	// A domain that is gone keeps what is assigned in it for the day it is back.
	d.reload("domain: other\ndescriptors: [{key: user, rate_limit: {requests: 1, period: 1h}}]\n")
	if p := d.askAdmin("GET", "/assignment?domain=api&entry=tenant=x", "view", ""); p.code != 200 {
		t.Errorf("%d %s", p.code, p.body)
	}
	if p := d.askAdmin("PUT", "/assignment?domain=api&entry=tenant=y", "run", `{"plan":"pro"}`); p.code != 400 {
		t.Errorf("%d %s", p.code, p.body)
	}
	if n := len(f.recorded()); n != 2 {
		t.Errorf("there are %d records", n)
	}
}
