package decide_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

const candidateLimits = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: stricter, requests: 2, period: 1h, shadow_mode: true}
      - {name: now, requests: 5, period: 1h}
  - key: trial
    rate_limits: [{name: only, requests: 1, period: 1h, shadow_mode: true}]
  - key: some
    rate_limit: {requests: 1, period: 1h, enforce: 30%}
  - key: more
    rate_limit: {requests: 1, period: 1h, enforce: 60%}
  - key: quota
    quota_mode: true
    rate_limits:
      - {name: now, requests: 1, period: 1h}
      - {name: stricter, requests: 0, period: 1h, shadow_mode: true}
      - {name: day, requests: 3, period: 1d}
`

// A candidate in shadow counts by itself, and neither denies nor speaks for the request.
func TestShadowLimitStandsBesideTheOneInForce(t *testing.T) {
	t.Parallel()
	r := newRig(t, candidateLimits)
	for i := range 6 {
		c := r.Take(decidetest.Asking("user=a", 1))
		o := &c.Outcomes[0]
		if c.Denied != (i == 5) || o.IsOver() != (i == 5) {
			t.Errorf("%d: denied %t, over %t", i, c.Denied, o.IsOver())
		}
		if stricter := o.Decisions[0].Allowed(); stricter != (i < 2) {
			t.Errorf("%d: the candidate allows: %t", i, stricter)
		}
		if l, _ := o.Decisive(); l.Name != "now" {
			t.Errorf("%d: %s speaks for it", i, l.Name)
		}
	}
	c := r.Take(decidetest.Asking("trial=a", 2))
	if l, _ := c.Outcomes[0].Decisive(); c.Denied || l != nil {
		t.Errorf("denied %t, %v speaks", c.Denied, l)
	}
}

func TestShadowLimitInAQuotaIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, candidateLimits)
	// The second quota keeps the first from being the only one.
	both := func(name string) bool {
		return !r.Take(decidetest.Asking("quota="+name, 1), decidetest.Asking("quota=other", 1)).Denied
	}
	for i, want := range []bool{true, true, false} {
		if got := both(fmt.Sprint(min(i, 1))); got != want {
			t.Errorf("%d: allowed %t", i, got)
		}
	}
}

// A share always has the same subjects, and a larger share includes those of a smaller
// one.
func TestEnforceIsForAStableShareOfTheSubjects(t *testing.T) {
	t.Parallel()
	const subjects = 4000
	denies := func(r *rig, key string, i int) bool {
		d := decidetest.Asking(fmt.Sprintf("%s=%d", key, i), 1)
		r.Take(d)
		return r.Take(d).Denied
	}
	one, other := newRig(t, candidateLimits), newRig(t, candidateLimits)
	counts := make(map[string]int)
	for i := range subjects {
		for _, key := range []string{"some", "more"} {
			denied := denies(one, key, i)
			if denied {
				counts[key]++
			}
			if denied != denies(other, key, i) {
				t.Fatalf("%s=%d is not denied by both", key, i)
			}
		}
	}
	for key, share := range map[string]float64{"some": .3, "more": .6} {
		if got := float64(counts[key]) / subjects; got < share-.04 || got > share+.04 {
			t.Errorf("%s: %.3f of the subjects are denied, want %.1f", key, got, share)
		}
	}
	subject := func(i int) []byte { return fmt.Appendf(nil, "subject %d", i) }
	for i := range subjects {
		var before bool
		for n := int64(bucket.AllSubjects); n >= 0; n -= 500 {
			l := bucket.Limit{Spec: bucket.Spec{Unenforced: n}}
			if before && !l.Enforces(subject(i)) {
				t.Fatalf("subject %d is let go when the share grows", i)
			}
			before = l.Enforces(subject(i))
		}
		if !before {
			t.Fatalf("subject %d is never denied", i)
		}
	}
}

// A limit is rolled out to more and more subjects, the same on every daemon.
func TestEnforcedShareOfSubjects(t *testing.T) {
	t.Parallel()
	const subjects = 2000
	denied := func(share string) map[int]bool {
		r := newRig(t, "domain: d\ndescriptors: [{key: user, rate_limit: {name: n, requests: 0, period: 1s, enforce: "+share+"}}]\n")
		found := make(map[int]bool)
		for i := range subjects {
			if r.Take(decidetest.Asking(fmt.Sprintf("user=%d", i), 1)).Denied {
				found[i] = true
			}
		}
		return found
	}
	some, again, more := denied("30%"), denied("30%"), denied("60%")
	// Ten standard deviations of 2,000 draws are 200.
	if n := len(some); n < 400 || n > 800 {
		t.Errorf("30%% of %d are %d", subjects, n)
	}
	if n := len(more); n < 1000 || n > 1400 {
		t.Errorf("60%% of %d are %d", subjects, n)
	}
	if !maps.Equal(some, again) {
		t.Error("after a restart others are denied")
	}
	for subject := range some {
		if !more[subject] {
			t.Errorf("subject %d is denied at 30%% and not at 60%%", subject)
		}
	}
}

// Numbers of a request replace those in force, and not those of a candidate.
func TestOwnNumbersAreInForce(t *testing.T) {
	t.Parallel()
	r := newRig(t, candidateLimits)
	r.Take(decidetest.Asking("user=a", 1))
	c := r.Take(decidetest.Bringing("user=a", 1, time.Hour))
	if o := &c.Outcomes[0]; !c.Denied || o.Limits[0].Name != "now" {
		t.Errorf("denied %t by %v", c.Denied, o.Limits[0].Spec)
	}
	for i := range 20 {
		key := fmt.Sprintf("some=%d", i)
		r.Take(decidetest.Asking(key, 1))
		if !r.Take(decidetest.Bringing(key, 1, time.Hour)).Denied {
			t.Errorf("%s: numbers of its own deny nothing", key)
		}
	}
	// Assigned numbers do not put a candidate in force.
	r.assign("user=b", assign.Terms{Numbers: []assign.Numbers{{Limit: "stricter", Requests: 0}}})
	if c := r.Take(decidetest.Asking("user=b", 1)); c.Denied || c.Outcomes[0].Decisions[0].Allowed() {
		t.Errorf("denied %t, %+v", c.Denied, c.Outcomes[0].Decisions)
	}
}

// Numbers of a request do not change what others get by the rule: its state neither drains
// by the caller's rate, nor is filled beyond the rule's burst, nor judged by another period
// than that in force.
func TestOwnNumbersDoNotHarmTheRule(t *testing.T) {
	t.Parallel()
	const victim = "user=a"
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			r := newRig(t, fmt.Sprintf("domain: d\ndescriptors: [{key: user, rate_limit: {algorithm: %s, requests: 10, period: 1h}}]\n", a))
			most := uint64(3_600_000)
			if a == bucket.SlidingLog {
				most = bucket.MaxLogRequests
			}
			admitted := 0
			for range 110 { // over 11 s
				if !r.Take(decidetest.Asking(victim, 1)).Denied {
					admitted++
				}
				r.Take(decidetest.Bringing(victim, most, time.Hour))
				r.Clock.Add(100_000)
			}
			if a.IsBucket() && admitted != 10 || admitted > 10 {
				t.Errorf("%d of 10 are admitted", admitted)
			}
			r.Clock.Add(time.Hour.Microseconds())
			if r.Take(decidetest.Asking(victim, 1)).Denied {
				t.Error("locked out for longer than the rule's period")
			}

			r.assign(victim, assign.Terms{Numbers: []assign.Numbers{{Requests: 20, Period: 24 * time.Hour}}})
			r.Take(decidetest.Asking(victim, 5))
			left := r.Take(decidetest.Asking(victim, 0)).Outcomes[0].Decisions[0].Remaining
			r.Clock.Add(2 * time.Hour.Microseconds())
			for _, own := range []uint64{5, 10, 100} {
				r.Take(decidetest.Bringing(victim, own, time.Hour))
			}
			switch got := r.Take(decidetest.Asking(victim, 0)).Outcomes[0].Decisions[0].Remaining; {
			case a.IsBucket() && got > left+2, !a.IsBucket() && got != left:
				t.Errorf("%d of 20 a day are left two hours after %d were", got, left)
			}
		})
	}
}
