package adminapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const holderLimits = `
domain: api
descriptors:
- key: tenant
  rate_limit: {name: rate, algorithm: fixed_window, requests: 100, period: 1h}
  descriptors:
  - key: request_id
    rate_limit: {name: flight, algorithm: concurrency, requests: 2, hold: 1m}
`

func startHolding(t testing.TB, change ...func(*server.Options)) (*servertest.Daemon, *servertest.Assignments) {
	t.Helper()
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	return servertest.Start(t, holderLimits, append([]func(*server.Options){members, servertest.WithAssignments(f)}, change...)...), f
}

// hold takes slots of a tenant, each by a holder of its own, until one is denied.
func hold(d *servertest.Daemon, tenant string) (n int) {
	d.T.Helper()
	for n < 20 && d.Take(fmt.Sprintf("tenant=%s,request_id=%d", tenant, n)).GetAllowed() {
		n++
		d.Clock.Move(time.Second)
	}
	return n
}

// What is assigned to a tenant goes for its requests in flight: numbers by the name of the
// limit, and blocks.
func TestAssignmentsReachRequestsInFlight(t *testing.T) {
	t.Parallel()
	d, _ := startHolding(t)
	put := func(at, body string, code int, says string) {
		t.Helper()
		if p := d.AskAdmin("PUT", "/assignment?domain=api&entry="+at, "run", body); p.Code != code || !strings.Contains(p.Body, says) {
			t.Errorf("%s of %s gets %d %s, want %d %s", body, at, p.Code, p.Body, code, says)
		}
	}
	put("tenant=acme", `{"numbers":[{"limit":"flight","requests":4}]}`, 201, "")
	put("tenant=long", `{"numbers":[{"limit":"flight","requests":4,"period":"90s"}]}`, 400, "none for requests in flight, whose hold stays")
	put("tenant=burst", `{"numbers":[{"limit":"flight","requests":4,"burst":9}]}`, 400, "no burst on a concurrency")
	put("tenant=other", `{"numbers":[{"limit":"fligth","requests":4}]}`, 400, "which the rule tenant does not have")
	put("tenant=one&entry=request_id=1", `{"numbers":[{"limit":"flight","requests":4}]}`, 400, "whose last entry names one holder in the rule tenant / request_id")
	if acme, other := hold(d, "acme"), hold(d, "other"); acme != 4 || other != 2 {
		t.Errorf("acme has %d slots, want 4, and another tenant %d, want 2", acme, other)
	}
	if x := explain(d, "tenant=acme,request_id=9").GetDescriptors()[0]; len(x.GetAssignments()) != 1 || !x.GetAssignments()[0].GetApplies() ||
		x.GetLimits()[0].GetSource() != adminv1.Source_SOURCE_ASSIGNMENT || x.GetLimits()[0].GetLimit().GetRequests() != 4 {
		t.Errorf("explain says %v", x)
	}
	put("tenant=other", `{"blocked":true}`, 201, "")
	if d.Take("tenant=other,request_id=0").GetAllowed() {
		t.Error("who is blocked renews")
	}
	released := servertest.Request("api", 1, "tenant=other,request_id=0")
	released.Descriptors[0].IsNegativeHits = true
	d.Send(released)
	p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","strict":true,"entries":[{"key":"tenant","value":"other"},{"key":"request_id","value":"0"}]}`)
	if p.Code != 400 || !strings.Contains(p.Body, "no slot is held by tenant=other,request_id=0") {
		t.Errorf("after a release by who is blocked a reset gets %d %s", p.Code, p.Body)
	}
}

// A reset of the subject frees all slots, and one of a holder its own.
func TestResetFreesSlots(t *testing.T) {
	t.Parallel()
	d, _ := startHolding(t)
	hold(d, "acme")
	reset := func(descriptor, more string, code int, says string) {
		t.Helper()
		var entries []string
		for _, e := range servertest.Taking(descriptor).Descriptors[0].Entries {
			entries = append(entries, fmt.Sprintf(`{"key":%q,"value":%q}`, e.GetKey(), e.GetValue()))
		}
		p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[`+strings.Join(entries, ",")+`]`+more+`}`)
		if p.Code != code || !strings.Contains(p.Body, says) {
			t.Errorf("a reset of %s gets %d %s, want %d %s", descriptor, p.Code, p.Body, code, says)
		}
	}
	left := func() uint64 { return d.Take("tenant=acme,request_id=x:0").GetLimits()[0].GetRemaining() }
	reset("tenant=acme,request_id=7", `,"strict":true`, 400, "no slot is held by tenant=acme,request_id=7")
	reset("tenant=acme,request_id=7", "", 200, "no slot is held by tenant=acme,request_id=7")
	reset("tenant=acme,request_id=1", `,"strict":true,"reason":"stuck"`, 200, `"warnings":[]`)
	if n := left(); n != 1 {
		t.Errorf("%d slots are free once one was freed", n)
	}
	reset("tenant=acme,request_id=", `,"strict":true`, 200, `"warnings":[]`)
	if n := left(); n != 2 {
		t.Errorf("%d slots are free once all were freed", n)
	}
	audit := servertest.ReadMessage[adminv1.ListAuditResponse](t, d.AskAdmin("GET", "/audit?domain=api&entry=tenant=acme&entry=request_id=1", "view", ""), 200).GetRecords()
	if len(audit) != 1 || audit[0].GetKind() != adminv1.AuditKind_AUDIT_KIND_RESET || audit[0].GetReason() != "stuck" {
		t.Errorf("the audit has %v", audit)
	}
}
