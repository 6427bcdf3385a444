package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
