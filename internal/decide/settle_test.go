package decide_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

// A settlement to more than a bucket refills within 366 days is refused: it would deny for
// years.
func TestSettlementIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 10, period: 1h}}]")
	const most = 10 * 24 * 366
	call := func(cost uint64) *decide.Call {
		c := r.NewCall()
		c.Domain, c.ID = "d", "one"
		c.Descriptors = append(c.Descriptors, decidetest.Asking("user=a", cost))
		return c
	}
	take := call(1)
	if err := errors.Join(take.Check(true), r.Decide(context.Background(), take)); err != nil {
		t.Fatal(err)
	}
	for cost, want := range map[uint64]string{
		most:     "",
		most + 1: fmt.Sprintf("descriptors[0].cost: found %d; allowed: 0 to %d, what the limit token_bucket refills within 366 days", most+1, most),
	} {
		c := call(cost)
		c.IsSettlement = true
		got := ""
		if err := errors.Join(c.Check(true), r.Settle(context.Background(), c)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("a settlement to %d: %q, want %q", cost, got, want)
		}
	}
}
