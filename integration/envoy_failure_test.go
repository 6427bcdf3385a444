package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Envoy treats a refused request as failed, whatever limits it is over. Unless
// failure_mode_deny is true, a client that chooses one of its headers passes;
// docs/envoy.md names this trap.
func TestEnvoyTreatsRefusedRequestsAsFailed(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", usersOf2)
	d := start(t, "--limits-path", dir, "--grpc-max-bytes", "65536")
	b := startBackend(t)
	routes := `
- match: {prefix: /}
  route:
    cluster: backend
    rate_limits:
      - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
      - actions: [{request_headers: {header_name: x-note, descriptor_key: note}}]
      - actions: [{request_headers: {header_name: x-note, descriptor_key: note_again}}]
`
	e := startEnvoy(t, configure(t, []front{
		{Name: "open", Filter: patiently, Routes: routes},
		{Name: "closed", Filter: patiently + "\nfailure_mode_deny: true", Routes: routes},
	}, ratelimitdAt(d.grpc), b.cluster()))
	for _, c := range []struct {
		name, note   string
		open, closed int
	}{
		{"short", "x", 429, 429},
		{"long, but within the bound", strings.Repeat("x", 32000), 429, 429},
		{"longer than grpc.max_bytes, twice", strings.Repeat("x", 33000), 200, 500},
		{"no UTF-8", "\xff", 429, 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, want := range map[string]int{"open": c.open, "closed": c.closed} {
				e.statuses(2, name, "/", "x-user: grace")
				if got := e.get(name, "/", "x-user: grace", "x-note: "+c.note).status; got != want {
					t.Errorf("%s: Envoy answers %d, want %d", name, got, want)
				}
			}
		})
	}
}

// Envoy waits 20 ms by default, less than redis.timeout. The daemon answers by
// its failure mode before that, and Envoy can log it.
func TestDaemonAnswersWithinEnvoysDefaultTimeout(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", usersOf2)
	server := redistest.Start(t)
	// The daemon denies; an Envoy that gives up lets pass.
	d := start(t, append(redisFlags("single", server.Addr()), "--limits-path", dir, "--failure-mode", "deny")...)
	b := startBackend(t)
	e := startEnvoy(t, configure(t, []front{{
		Name: "default", Routes: userRoutes,
		Log: "%RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit:degraded)%",
	}}, ratelimitdAt(d.grpc), b.cluster()))
	timeouts := func() float64 { return d.degraded(`mode="deny"`, `reason="timeout"`) }
	decides := func() bool {
		r, err := d.tryAsk("envoy", 1, "user=direct")
		return err == nil && !degraded(r)
	}
	asynctest.Eventually(t, "Redis decides", decides)
	// A busy machine may be late now and then.
	try := 0
	asynctest.Eventually(t, "Redis decides within 20 ms", func() bool {
		try++
		user := fmt.Sprintf("x-user: user-%d", try)
		return slices.Equal(e.statuses(3, "default", "/", user), []int{200, 200, 429})
	})
	asynctest.Eventually(t, "Envoy logs it", func() bool { return slices.Contains(e.logged("default"), "429 -") })
	asynctest.Eventually(t, "an answer without Redis comes within 20 ms", func() bool {
		try++
		before := timeouts()
		server.Pause()
		got := e.get("default", "/", fmt.Sprintf("x-user: user-%d", try)).status
		server.Resume()
		asynctest.Eventually(t, "Redis decides", decides)
		return got == 429 && timeouts() == before+1 // the breaker was not open yet
	})
	asynctest.Eventually(t, "Envoy logs it", func() bool { return slices.Contains(e.logged("default"), "429 true") })
}
