package integration

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const tagsLimits = `
domain: all
descriptors:
  - key: here
    on_store_failure: error
    rate_limit: {algorithm: fixed_window, requests: 1000, period: 365d}
  - key: other
    on_store_failure: allow
    rate_limit: {algorithm: fixed_window, requests: 1000, period: 365d}
  - key: allow
    on_store_failure: allow
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: deny
    on_store_failure: deny
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: local
    on_store_failure: local
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
  - key: error
    on_store_failure: error
    rate_limit: {algorithm: fixed_window, requests: 10, period: 365d}
`

// A request asks two masters, and one does not answer. Redis decides for the
// other, and the failure mode of its limit for the silent one alone. Denied
// and failed requests cost nothing.
func TestNodeThatIsDownFailsItsOwnLimitsAlone(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	dir := t.TempDir()
	write(t, dir, "all.yaml", tagsLimits)
	flags := append(redisFlags("cluster", c.Addrs()...), "--redis-timeout", "1s", "--failure-replicas", "2", "--limits-path", dir)
	d := start(t, flags...)

	modes := []string{"allow", "deny", "local", "error"}
	candidates := append(numbered("here", 24), numbered("other", 24)...)
	for _, mode := range modes {
		candidates = append(candidates, numbered(mode, 24)...)
	}
	for _, s := range candidates {
		if !ok(d.ask("all", 2, s)) {
			t.Fatalf("%s is denied", s)
		}
	}
	master := holders(t, flagOf(flags, "--redis-prefix"), c.Masters, candidates...)
	find := func(key string, at *redistest.Server) string {
		for _, s := range candidates {
			if strings.HasPrefix(s, key+"=") && master[s] == at {
				return s
			}
		}
		t.Fatalf("none of 24 keys of %s is at %s", key, at.Addr())
		return ""
	}
	here := find("here", c.Masters[0])
	c.Masters[1].Pause()
	asynctest.Eventually(t, "the node that stands still is not asked for", func() bool {
		d.ask("all", 1, find("other", c.Masters[1]))
		return d.total("ratelimitd_redis_breaker_open", `node="`+c.Masters[1].Addr()+`"`) == 1
	})

	admitted := 0
	for _, mode := range modes {
		before := d.total("ratelimitd_degraded_answers_total", `mode="`+mode+`"`)
		passed, failure := 0, error(nil)
		for range 9 {
			r, err := d.client.ShouldRateLimit(t.Context(), requestFor("all", here+" "+find(mode, c.Masters[1])))
			switch {
			case err != nil:
				failure = err
			case !degraded(r):
				t.Errorf("%s: an answer is not marked: %v", mode, r)
			case ok(r):
				passed++
			}
		}
		admitted += passed
		if want := map[string]int{"allow": 9, "deny": 0, "local": 5, "error": 0}[mode]; passed != want {
			t.Errorf("%s: %d of 9 passed, want %d", mode, passed, want)
		}
		if (mode == "error") != (failure != nil) || failure != nil && status.Code(failure) != codes.Unavailable {
			t.Errorf("%s: the failure is %v", mode, failure)
		}
		if n := d.total("ratelimitd_degraded_answers_total", `mode="`+mode+`"`) - before; n != 9 {
			t.Errorf("%s: %v answers of 9 are counted", mode, n)
		}
	}
	if n := d.taken("all", here, 1000); n != 2+admitted {
		t.Errorf("%d are charged at the master that answers, and %d were admitted", n-2, admitted)
	}

	c.Masters[1].Resume()
	for _, mode := range modes {
		s := find(mode, c.Masters[1])
		asynctest.Eventually(t, s+" is decided by Redis again", func() bool {
			r, err := d.tryAsk("all", 11, s) // more than it can have
			return err == nil && !degraded(r)
		})
		if n := d.taken("all", s, 10); n != 2 {
			t.Errorf("%s: %d are charged, of 2 that Redis admitted", s, n)
		}
	}
}
