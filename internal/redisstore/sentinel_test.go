package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestStateSurvivesASentinelFailover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sentinels, master, replica := redistest.StartSentinel(t, "limits")
	o := options(redisconn.Sentinel, sentinels...)
	o.SentinelMaster = "limits"
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 100, Period: 24 * time.Hour})
	take(t, s, hit(l, "a", 60))
	if err := open(t, options(redisconn.Single, replica.Addr())).Ping(ctx); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica, which cannot decide, answers a ping with %v", err)
	}
	asynctest.Eventually(t, "the replica has the key", func() bool { return len(redistest.Keys(t, redistest.Client(t, replica.Addr()), o.Prefix)) == 1 })
	master.Kill()
	d := make([]bucket.Decision, 1)
	asynctest.Eventually(t, "the replica was promoted", func() bool {
		return s.Take(ctx, []bucket.Hit{hit(l, "a", 0)}, d) == nil
	})
	if d[0].Remaining != 40 {
		t.Errorf("%d remain after the failover, want 40", d[0].Remaining)
	}
	// The promoted replica has no script yet on new connections; it decides.
	if d := take(t, s, hit(l, "a", 41))[0]; d.Allowed() {
		t.Errorf("more than remains was allowed: %+v", d)
	}
}
