package client_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// use asks uses times, evenly in a span of the lease's clock, and returns how many asks the
// daemon saw meanwhile.
func use(t *testing.T, l *lender, c *client.Client, k *clock, uses int, span time.Duration) int {
	t.Helper()
	_, _, before := l.charged()
	for range uses {
		k.pass(span/time.Duration(uses), span/time.Duration(uses))
		if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
			t.Fatal(ok, err)
		}
		// Answers take no time on the lease's clock.
		for c.IsAskingAhead() {
			time.Sleep(10 * time.Microsecond)
		}
	}
	_, _, after := l.charged()
	return after - before
}

func TestAsksAreFewWhereGrantsSuffice(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		uses, leases, most int // uses in a span of so many leases, and the most asks
	}{
		"10 in a lease":     {uses: 1000, leases: 100, most: 1000 / 5},
		"30,000 in a lease": {uses: 90_000, leases: 3, most: 2 * 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLender(long)
			c, k := borrower(t, l)
			use(t, l, c, k, row.uses/row.leases, long) // from nothing
			if asks := use(t, l, c, k, row.uses, time.Duration(row.leases)*long); asks > row.most {
				t.Errorf("%d asks for %d uses", asks, row.uses)
			}
		})
	}
}

func TestAsksFollowDemandWithinALease(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	if asks := use(t, l, c, k, 30_000, long); asks > 30 {
		t.Errorf("%d asks until the rate was known", asks)
	}
	k.pass(3*long, 3*long)
	units, _, _ := l.charged()
	use(t, l, c, k, 1, long)
	asynctest.Eventually(t, "all of it was used or goes back", func() bool {
		charged, back, _ := l.charged()
		return charged == units+1 && charged-back == 30_001
	})
}
