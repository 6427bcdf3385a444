package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const (
	slots       = 5
	slotsLimits = `
domain: all
descriptors:
  - key: tenant
    descriptors:
      - key: request
        on_store_failure: deny
        rate_limit: {algorithm: concurrency, requests: 5, hold: %s}
`
)

// slot asks for a slot of a tenant, or releases it.
func (d *daemon) slot(tenant, holder string, isRelease bool) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	return d.client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "all", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Entries:        []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: tenant}, {Key: "request", Value: holder}},
		IsNegativeHits: isRelease,
	}}})
}

// answerTimeout is how long an answer may take on a slow machine.
const answerTimeout = 30 * time.Second

// What a replica has of the holders counts when it takes its master's place.
func TestSlotsOverAFailover(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
	dir := t.TempDir()
	write(t, dir, "all.yaml", fmt.Sprintf(slotsLimits, "1h"))
	flags := append(redisFlags("cluster", c.Addrs()...), "--redis-hash-tags", "6", "--limits-path", dir)
	d, other := start(t, flags...), start(t, flags...)
	const tenants = 12
	for i := range tenants {
		for n := range slots {
			if r, err := d.slot(fmt.Sprint("t", i), fmt.Sprint(n), false); err != nil || !ok(r) {
				t.Fatalf("a take gets %v, %v", r, err)
			}
		}
	}
	witness := redistest.Client(t, c.Masters[1].Addr())
	waitReplicated(t, c.Masters[0])
	c.Masters[0].Kill()
	asynctest.Eventually(t, "a replica is promoted", func() bool {
		addr, err := masterOf(witness, 0)
		return err == nil && addr != c.Masters[0].Addr()
	})
	for i := range tenants {
		tenant := fmt.Sprint("t", i)
		// A renewal is allowed only where the holder is known.
		asynctest.Eventually(t, "a holder renews", func() bool {
			r, err := other.slot(tenant, "0", false)
			if r != nil && ok(r) && r.GetStatuses()[0].GetLimitRemaining() != 0 {
				t.Fatalf("%s has slots that others hold: %v", tenant, r)
			}
			return err == nil && ok(r)
		})
		if r, err := other.slot(tenant, "another", false); err != nil || ok(r) {
			t.Errorf("%s: after the failover another gets %v, %v", tenant, r, err)
		}
		// The first daemon may not have heard of the new master yet.
		asynctest.Eventually(t, "another has the slot that was released", func() bool {
			_, _ = d.slot(tenant, "3", true)
			r, err := other.slot(tenant, "another", false)
			return err == nil && ok(r)
		})
	}
}
