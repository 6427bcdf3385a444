package decide_test

import (
	"context"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

const userLimits = `
domain: d
descriptors:
  - key: user
    rate_limit: {requests: 10, period: 1h, algorithm: fixed_window}
`

// manyTaker decides takes one after the other.
type manyTaker struct{ bucket.Store }

// NodeOf implements decide.ManyTaker. There is one.
func (manyTaker) NodeOf([]bucket.Hit) any { return 1 }

// TakeMany implements decide.ManyTaker.
func (m manyTaker) TakeMany(ctx context.Context, takes []bucket.Take) {
	for i := range takes {
		takes[i].Err = m.Take(ctx, takes[i].Hits, takes[i].Decisions)
	}
}

// Calls join others if all that they need is one answer of the store.
func TestOnlyPlainTakesAreDecidedTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, userLimits+`
  - key: used
    rate_limit: {requests: 10, period: 1h, algorithm: fixed_window, postpaid: true}
`)
	r.Many = manyTaker{r.Memory}
	r.assign("user=blocked", assign.Terms{Blocked: true})
	named := r.Call(decidetest.Asking("user=a", 1))
	named.ID = "id"
	refund := decidetest.Asking("user=a", 1)
	refund.Refund = true
	for name, c := range map[string]struct {
		call  *decide.Call
		joins bool
	}{
		"a take":          {r.Call(decidetest.Asking("user=a", 1)), true},
		"a peek":          {r.Call(decidetest.Asking("user=a", 0)), true},
		"several":         {r.Call(decidetest.Asking("user=a", 1), decidetest.Asking("user=b", 1), decidetest.Asking("nobody=a", 1)), true},
		"no rule":         {r.Call(decidetest.Asking("nobody=a", 1)), false},
		"a block":         {r.Call(decidetest.Asking("user=a", 1), decidetest.Asking("user=blocked", 1)), false},
		"an ID":           {named, false},
		"a refund":        {r.Call(refund), true},
		"a postpaid take": {r.Call(decidetest.Asking("used=a", 1)), false},
	} {
		if err := r.Match(c.call); err != nil {
			t.Fatal(name, err)
		}
		if joins := r.NodeOf(c.call) != nil; joins != c.joins {
			t.Errorf("%s joins others: %t", name, joins)
		}
		errs := []error{nil}
		r.DecideTogether(t.Context(), []*decide.Call{c.call}, errs)
		if c.joins != (errs[0] == nil) || !c.joins && errs[0] != decide.ErrAlone {
			t.Errorf("%s: %v", name, errs[0])
		}
	}
}
