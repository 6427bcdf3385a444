package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Redis decides again as soon as it answers, however long it was away, and no request waits
// when its clock steps: assignments are in force either way. Meanwhile inspect says who
// decides.
func TestNoRequestWaitsForAssignments(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	proxy := redistest.StartProxy(t, server.Addr())
	d := start(t, steered(t, tenantPlans, redisFlags("single", proxy.Addr())...)...)
	asynctest.Eventually(t, "the daemon follows assignments", func() bool {
		_, _, code := d.steer("", "assign", "--domain", "api", "tenant=acme", "--plan", "ten")
		return code == 0
	})
	isDegraded := func() bool {
		r, err := d.tryAsk("api", 1, "tenant=acme")
		return err != nil || degraded(r)
	}
	inspected := func(args ...string) string {
		t.Helper()
		out, stderr, code := d.steer("", append([]string{"inspect", "--domain", "api", "tenant=acme"}, args...)...)
		if code != 0 {
			t.Fatalf("inspect exits with %d: %s", code, stderr)
		}
		return out
	}
	const away = "The store does not answer"
	if text, json := inspected(), inspected("--json"); strings.Contains(text, away) || !strings.Contains(json, `"degraded":false`) {
		t.Errorf("with Redis, inspect shows\n%s%s", text, json)
	}
	proxy.Refuse()
	asynctest.Eventually(t, "Redis is away", isDegraded)
	time.Sleep(soaktest.Long(time.Second, 8*time.Second)) // the length of the outage
	if text, json := inspected(), inspected("--json"); !strings.HasPrefix(text, away) || !strings.Contains(json, `"degraded":true`) {
		t.Errorf("without Redis, inspect shows\n%s%s", text, json)
	}
	began := time.Now()
	proxy.Heal(t)
	asynctest.Eventually(t, "Redis decides", func() bool { return !isDegraded() })
	took := time.Since(began)
	t.Logf("Redis decides %s after it answers", took)
	if took > 3*time.Second { // 100 ms, and more where other tests are busy
		t.Errorf("Redis decides %s after it answers", took)
	}
	clock.Set(10 * time.Second)
	began = time.Now()
	for range 10 {
		if isDegraded() {
			t.Error("an answer is degraded, since the clock of Redis has gained 10 s")
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("10 requests take %s, since the clock of Redis has gained 10 s", took)
	}
}

// What has an end lies on top of the contract, and comes off.
func TestReliefLeavesTheContract(t *testing.T) {
	t.Parallel()
	d := start(t, steered(t, `
domain: api
descriptors:
  - key: tenant
    plans:
      free: {name: month, algorithm: fixed_window, requests: 1000, period: 30d}
      pro: {name: month, algorithm: fixed_window, requests: 1000000, period: 30d}
    plan: free
`)...)
	began := time.Now()
	for _, args := range [][]string{
		{"--plan", "pro", "--limit", "month=5000000"},
		{"--limit", "month=6000000", "--for", "2s"},
	} {
		if _, stderr, code := d.steer("", append([]string{"assign", "--domain", "api", "tenant=acme"}, args...)...); code != 0 {
			t.Fatalf("assign exits with %d: %s", code, stderr)
		}
	}
	capacity := func() string {
		r, _, _ := d.steer("", "inspect", "--domain", "api", "tenant=acme")
		for _, n := range []string{"6,000,000", "5,000,000"} {
			if strings.Contains(r, n+" of "+n) {
				return n
			}
		}
		return r
	}
	if got := capacity(); got != "6,000,000" && time.Since(began) < 2*time.Second {
		t.Errorf("with relief %s are left", got)
	}
	asynctest.Eventually(t, "relief ends", func() bool { return capacity() != "6,000,000" })
	if got := capacity(); got != "5,000,000" {
		t.Errorf("after relief %s are left", got)
	}
}
