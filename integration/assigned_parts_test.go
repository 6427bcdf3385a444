package integration

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Relief lies on top of a contract, at each daemon, and comes off by itself or by a
// command; then the contract is in force again.
func TestReliefComesOffAndLeavesTheContract(t *testing.T) {
	t.Parallel()
	daemons := startAll(t, 2, steered(t, tenantPlans, redisFlags("single", redistest.Single(t))...)...)
	for i, step := range []struct{ args, left string }{
		{"assign --domain api tenant=acme --plan ten --limit year=50", "year: 50 left"},
		{"assign --domain api tenant=acme --limit year=500 --for 24h", "year: 500 left"},
		{"unassign --domain api tenant=acme --temporary", "year: 50 left"},
		{"assign --domain api tenant=acme --limit year=400 --for 2s", "year: 50 left"},
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
}
