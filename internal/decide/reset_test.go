package decide_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

const resetLimits = `domain: d
descriptors:
- key: user
  rate_limits:
  - {name: minute, requests: 3, period: 1m}
  - {name: day, requests: 100, period: 1d}
- key: tenant
  plans:
    free: {requests: 2, period: 1h}
    pro: {requests: 20, period: 1h}
  plan: free
- key: shared
  value: a*
  share_threshold: true
  rate_limit: {requests: 5, period: 1m}
- key: free
  rate_limit: {unlimited: true}
- key: vip
  rate_limit: {name: vip, requests: 50, period: 1m, replaces: [{name: minute}]}
`

// kindOf returns the kind of an error of the decider, or 0.
func kindOf(err error) decide.Kind {
	if e, ok := errors.AsType[*decide.Error](err); ok {
		return e.Kind
	}
	return 0
}

func TestResettableNamesTheStates(t *testing.T) {
	day := "day"
	gone := "gone"
	for _, tc := range []struct {
		domain, entries string
		limit           *string
		limits, keys    string
		kind            decide.Kind
	}{
		{"d", "user=x", nil, "minute day", "d|user=x#token_bucket:minute d|user=x#token_bucket:day", 0},
		{"d", "user=x", &day, "day", "d|user=x#token_bucket:day", 0},
		{"d", "user=x", &gone, "", "", decide.Invalid},
		{"d", "tenant=x", nil, "", "d|tenant=x#token_bucket", 0},
		{"d", "shared=ab", nil, "", "d|shared==a*#token_bucket", 0},
		{"d", "vip=x", nil, "vip", "d|vip=x#token_bucket:vip", 0},
		{"d", "free=x", nil, "", "", 0},
		{"d", "other=x", nil, "", "", 0},
		{"e", "user=x", nil, "", "", decide.Invalid},
	} {
		r := newRig(t, resetLimits)
		got, err := r.Resettable(tc.domain, decidetest.Entries(tc.entries), tc.limit)
		if kindOf(err) != tc.kind || strings.Join(got.Limits, " ") != tc.limits || strings.Join(got.Keys, " ") != tc.keys || (got.Idle != "") != (err == nil && tc.keys == "") {
			t.Errorf("%s %s: got %+v, %v", tc.domain, tc.entries, got, err)
		}
	}
}

// After a reset the subject's limits are full, and others are as before.
func TestResettableStatesAreForgotten(t *testing.T) {
	r := newRig(t, resetLimits)
	r.Take(decidetest.Asking("user=x", 3))
	r.Take(decidetest.Asking("user=y", 3))
	states, err := r.Resettable("d", decidetest.Entries("user=x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Memory.Forget(states.Keys)
	if c := r.Take(decidetest.Asking("user=x", 3)); c.Denied {
		t.Error("after a reset the subject is denied")
	}
	if c := r.Take(decidetest.Asking("user=y", 1)); !c.Denied {
		t.Error("another subject was reset too")
	}
}
