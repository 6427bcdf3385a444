package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// modesOf10 is a limits file with a rule for each failure mode, by the key of
// its name, and one without a mode.
const modesOf10 = `
domain: modes
descriptors:
  - key: default
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: local
    on_store_failure: local
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: allow
    on_store_failure: allow
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: deny
    on_store_failure: deny
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: error
    on_store_failure: error
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
`

// admittedDegraded asks n times and returns how many were allowed, or -1 if a
// call fails. It checks that each answer is marked as degraded.
func (d *daemon) admittedDegraded(n int, key string) int {
	d.t.Helper()
	admitted := 0
	for range n {
		r, err := d.tryAsk("modes", 1, key)
		if err != nil {
			return -1
		}
		if !degraded(r) {
			d.t.Errorf("%s: an answer without Redis is not marked", key)
		}
		if ok(r) {
			admitted++
		}
	}
	return admitted
}

// A daemon serves from its start without Redis, each rule by its mode. It uses
// Redis as soon as that answers.
func TestServesWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "modes.yaml", modesOf10)
	server := redistest.Start(t)
	server.Stop()
	d := start(t, append(redisFlags("single", server.Addr()), "--limits-path", dir, "--failure-replicas", "3")...)
	for key, want := range map[string]int{"default": 3, "local": 3, "allow": 12, "deny": 0, "error": -1} {
		if got := d.admittedDegraded(12, key+"=k"); got != want {
			t.Errorf("%s: %d of 12 requests are admitted, want %d", key, got, want)
		}
	}
	if out, _, code := command(t, "health", "--address", d.grpc); code != 0 || out != "SERVING\n" {
		t.Errorf("health exits with %d: %q", code, out)
	}
	out, _, code := command(t, "query", "--address", d.grpc, "--domain", "modes", "local=k2")
	if code != 0 || !strings.Contains(out, "2 left; 10 requests a year") || !strings.Contains(out, "DEGRADED") {
		t.Errorf("a query exits with %d:\n%s", code, out)
	}
	server.Restart()
	asynctest.Eventually(t, "Redis decides", func() bool { return !degraded(d.ask("modes", 1, "default=other")) })
	if r := d.ask("modes", 10, "local=k"); degraded(r) || !ok(r) {
		t.Errorf("with Redis an untouched limit of 10 gives %v", r)
	}
	for _, line := range []string{"the store does not answer", "could not sign in", "call failed"} {
		if n := strings.Count(d.logText(), line); n != 1 {
			t.Errorf("the log says %d times %q; once a minute is enough", n, line)
		}
	}
}

// A caller that waits less than redis.timeout still gets its answer.
func TestAnswersWithinTheDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "modes.yaml", modesOf10)
	server := redistest.Start(t)
	d := start(t, append(redisFlags("single", server.Addr()), "--limits-path", dir)...) // 10 s
	server.Pause()
	defer server.Resume()
	asynctest.Eventually(t, "a caller is answered in time", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		r, err := d.client.ShouldRateLimit(ctx, request("modes", 1, "default=k"))
		if status.Code(err) == codes.DeadlineExceeded {
			return false // a busy machine is slow now and then
		}
		if err != nil || !degraded(r) {
			t.Errorf("with Redis standing still a request gives %v, %v", r, err)
		}
		return true
	})
}

// member is a line of `ratelimitd daemons --json`.
type member struct {
	ID   string    `json:"id"`
	Seen time.Time `json:"seen"`
}

func members(t testing.TB, flags []string) (all []member) {
	t.Helper()
	out, stderr, code := command(t, append([]string{"daemons", "--json"}, flags...)...)
	if code != 0 {
		t.Fatalf("daemons exits with %d: %s", code, stderr)
	}
	for line := range strings.Lines(out) {
		var m member
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// waitForFleet waits until n daemons are signed in and each has seen that.
func waitForFleet(t testing.TB, flags []string, n int) {
	t.Helper()
	asynctest.Eventually(t, fmt.Sprintf("%d daemons are signed in", n), func() bool { return len(members(t, flags)) == n })
	var complete time.Time
	for _, m := range members(t, flags) {
		if m.Seen.After(complete) {
			complete = m.Seen
		}
	}
	asynctest.Eventually(t, "all have signed in since", func() bool {
		for _, m := range members(t, flags) {
			if !m.Seen.After(complete) {
				return false
			}
		}
		return true
	})
}

// Three daemons that have seen each other share a limit when Redis stops: each
// has a third, rounded down, and together no more than the limit.
func TestThreeDaemonsShareALimitWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "modes.yaml", modesOf10)
	server := redistest.Start(t)
	flags := redisFlags("single", server.Addr())
	args := append(flags, "--limits-path", dir, "--redis-timeout", "200ms")
	daemons := []*daemon{start(t, args...), start(t, args...), start(t, args...)}
	waitForFleet(t, flags, 3)
	server.Kill()
	for i, d := range daemons {
		if n := d.admittedDegraded(11, "default=k"); n != 3 {
			t.Errorf("daemon %d of 3 admits %d of a limit of 10, want 3", i, n)
		}
	}
	// The empty register fills one by one; the first daemon in it must not take
	// itself for the only one.
	server.Restart()
	for _, d := range daemons {
		asynctest.Eventually(t, "Redis decides", func() bool { return !degraded(d.ask("modes", 1, "allow=other")) })
	}
	asynctest.Eventually(t, "somebody is signed in again", func() bool { return len(members(t, flags)) > 0 })
	server.Kill()
	for i, d := range daemons {
		if n := d.admittedDegraded(11, "default=k"); n != 0 {
			t.Errorf("daemon %d admits %d more after Redis was back for a moment", i, n)
		}
	}
}

// A Redis that comes and goes grants no fresh share each time.
func TestFlappingRedisGrantsNoFreshShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "modes.yaml", modesOf10)
	server := redistest.Start(t)
	flags := append(redisFlags("single", server.Addr()), "--limits-path", dir, "--failure-replicas", "2", "--redis-timeout", "200ms")
	d := start(t, flags...)
	admitted := 0
	for range 4 {
		server.Pause()
		admitted += d.admittedDegraded(2, "default=k")
		server.Resume()
		asynctest.Eventually(t, "Redis decides", func() bool { return !degraded(d.ask("modes", 1, "allow=other")) })
	}
	if admitted != 5 {
		t.Errorf("in four absences of Redis %d of 8 requests were admitted, want half of the limit of 10", admitted)
	}
}
