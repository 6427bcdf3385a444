package integration

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Another number for some time leaves a customer's plan, at each daemon, which is in force
// once the number has ended.
func TestAssignedNumberEndsAndLeavesThePlan(t *testing.T) {
	t.Parallel()
	daemons := startAll(t, 2, steered(t, tenantPlans, redisFlags("single", redistest.Single(t))...)...)
	for i, step := range []struct{ args, left string }{
		{"assign --domain api tenant=acme --plan ten", "year: 10 left"},
		{"assign --domain api tenant=acme --limit year=500 --for 24h", "year: 500 left"},
		{"assign --domain api tenant=acme --limit year=400 --for 2s", "year: 10 left"},
	} {
		if out, stderr, code := daemons[i%2].steer("", strings.Fields(step.args)...); code != 0 {
			t.Fatalf("%s ends with %d: %s%s", step.args, code, out, stderr)
		}
		for _, d := range daemons {
			asynctest.Eventually(t, step.left, func() bool {
				out, _, _ := d.steer("", "query", "--address", d.grpc, "--domain", "api", "--peek", "tenant=acme")
				return strings.Contains(out, step.left)
			})
		}
	}
	const want = "api,tenant=acme,ten,,,,,,,,,,,"
	if got := strings.Join(wantSame(t, daemons...), "\n"); got != want {
		t.Errorf("%q is left, want %q", got, want)
	}
}
