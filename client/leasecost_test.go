//go:build !race

package client_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// holder returns a client that holds a million units, or a denial.
func holder(t testing.TB, isAllowed bool) *client.Client {
	l := newLender(long)
	c, k := borrower(t, l)
	mustTake(t, c, costing(1))
	l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		answer := daemontest.Denied(long)
		if answer.GoodFor = durationpb.New(long); isAllowed {
			if answer = l.lend(r); r.GetLease() > 0 {
				answer.Granted = 1 << 50
			}
		}
		return answer
	})
	for range 10 {
		k.pass(1, 1)
		mustTake(t, c, costing(1))
	}
	asynctest.Eventually(t, "nothing is asked", func() bool { return !c.IsAskingAhead() })
	return c
}

func TestLeasesDoNotAllocate(t *testing.T) {
	for name, isAllowed := range map[string]bool{"allowed": true, "denied": false} {
		t.Run(name, func(t *testing.T) {
			c := holder(t, isAllowed)
			allocations := testing.AllocsPerRun(1000, func() {
				if ok, err := c.Allow(context.Background(), "api", client.E("user", "x")); ok != isAllowed || err != nil {
					t.Error(ok, err)
				}
			})
			if s := c.Stats(); allocations > 0 || s.Leased+s.LeasedDenied < 1000 {
				t.Errorf("%v allocations: %+v", allocations, s)
			}
		})
	}
}

func BenchmarkLeased(b *testing.B) {
	for name, isAllowed := range map[string]bool{"allowed": true, "denied": false} {
		c := holder(b, isAllowed)
		ask := func() {
			if ok, err := c.Allow(context.Background(), "api", client.E("user", "x")); ok != isAllowed || err != nil {
				b.Error(ok, err)
			}
		}
		b.Run(name+"/1", func(b *testing.B) {
			for b.Loop() {
				ask()
			}
		})
		b.Run(name+"/256", func(b *testing.B) {
			b.SetParallelism(128)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					ask()
				}
			})
		})
	}
}
