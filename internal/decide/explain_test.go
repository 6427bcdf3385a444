package decide_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/racetest"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// What Explain says is what Decide then does, whatever the rules, the assignments and
// the request; and a second Explain says the same.
func TestExplainSaysWhatDecideDoes(t *testing.T) {
	denied, seen := holdAgainstDecide(t, racetest.Fewer(120), 60, func(*decide.Options) {})
	for v, name := range verdicts {
		if seen[v] < racetest.Fewer(20) {
			t.Errorf("%d descriptors are %s: the test sees too little", seen[v], name)
		}
	}
	if denied < racetest.Fewer(500) {
		t.Errorf("%d requests were denied", denied)
	}
}

// endSome gives some parts an end of their own.
func endSome(rnd *rand.Rand, a *assign.Assignment, now int64) {
	end := func(has bool) int64 {
		if !has || rnd.IntN(2) == 0 {
			return 0
		}
		return now + 1 + rnd.Int64N(20e6)
	}
	a.PlanUntil, a.UnlimitedUntil, a.BlockedUntil = end(a.Plan != ""), end(a.Unlimited), end(a.Blocked)
	for range a.Numbers {
		a.NumbersUntil = append(a.NumbersUntil, end(true))
	}
	*a = a.Canonical()
}

// holdAgainstDecide explains random requests and then decides them, and returns how
// many were denied and which verdicts there were.
func holdAgainstDecide(t *testing.T, worlds, requests int, change func(*decide.Options)) (int, map[decide.Verdict]int) {
	t.Helper()
	denied, seen := 0, map[decide.Verdict]int{}
	for seed := range uint64(worlds) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		limits := randomLimits(rnd)
		if !strings.Contains(limits, "- key") {
			continue
		}
		modes := decide.Modes{Shadow: rnd.IntN(10) == 0, Quota: rnd.IntN(5) == 0, DenyUnmatched: rnd.IntN(3) == 0}
		r := newRig(t, limits, func(o *decide.Options) { o.Modes = modes }, change)
		for range requests {
			if rnd.IntN(4) == 0 {
				d := randomDescriptor(rnd)
				a := &assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: d.Entries}, Terms: randomTerms(rnd)}
				endSome(rnd, a, r.clock.Load())
				r.table.Put(a)
			}
			r.clock.Add(rnd.Int64N(3e6))
			var asked []decide.Descriptor
			for range 1 + rnd.IntN(3) {
				asked = append(asked, randomDescriptor(rnd))
			}
			before := r.store.Stats()
			x, again := r.explain(asked...), r.explain(asked...)
			if show(x) != show(again) {
				t.Fatalf("seed %d: a second explanation differs:\n%s\n%s", seed, show(x), show(again))
			}
			// The store's sweep may forget keys meanwhile, as they expire on the rig's clock.
			if after := r.store.Stats(); after.Keys > before.Keys || after.Bytes > before.Bytes || after.Evicted != before.Evicted || after.Degraded != before.Degraded {
				t.Fatalf("seed %d: explaining makes %+v of %+v:\n%s", seed, before, after, show(x))
			}
			c := r.take(asked...)
			if difference := compare(x, c); difference != "" {
				t.Fatalf("seed %d: %s\n%s\n%s", seed, difference, show(x), limits)
			}
			if c.Denied {
				denied++
			}
			for i := range x.Descriptors {
				seen[x.Descriptors[i].Verdict]++
			}
		}
	}
	return denied, seen
}

// compare says how a decided call differs from its explanation, or returns "".
func compare(x *decide.Explanation, c *decide.Call) string {
	// Hits with equal keys are decided as one. A hit that is denied and charged anyway
	// makes the wait longer.
	merged, of := bucket.Merge(nil, nil, c.Hits)
	chargesDenied := false
	for i := range merged {
		chargesDenied = chargesDenied || merged[i].Limit.ChargedAnyway(merged[i].Cost)
	}
	if x.Allowed == c.Denied || c.Denied && x.RetryAfter != c.RetryAfter() && !chargesDenied || !c.Denied && x.RetryAfter != 0 {
		return fmt.Sprintf("denied %v, retry %s", c.Denied, c.RetryAfter())
	}
	n := 0
	for i := range c.Outcomes {
		o, e := &c.Outcomes[i], &x.Descriptors[i]
		limits, decisions := o.Limits, o.Decisions
		if o.Refusal != decide.NotRefused {
			limits, decisions = limits[1:], decisions[1:]
			n++
		}
		if len(limits) != len(e.Limits) {
			return fmt.Sprintf("descriptor %d has %d limits", i, len(limits))
		}
		if over := e.Verdict != decide.VerdictAllowed && e.Verdict != decide.VerdictUnlimited && e.Verdict != decide.VerdictUnmatchedAllowed; over != o.IsOver() {
			return fmt.Sprintf("descriptor %d is over: %v", i, o.IsOver())
		}
		for j := range limits {
			l, d := &e.Limits[j], decisions[j]
			h := &merged[of[n]]
			n++
			left := l.Remaining
			if bucket.Charged(h, &d, !c.Denied) {
				left = max(0, left-h.Cost)
			}
			if l.Limit != limits[j] || !strings.HasSuffix(l.Key, string(h.Key)) || d.Allowed() != l.Allowed() || d.RetryAfter != l.RetryAfter && !h.Limit.ChargedAnyway(h.Cost) || d.Remaining != left {
				return fmt.Sprintf("limit %d of descriptor %d gets %+v, and its explanation is %+v", j, i, d, l.Decision)
			}
		}
	}
	return ""
}

const explained = `domain: d
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
- key: tried
  rate_limits:
  - {name: stricter, requests: 1, period: 1m, shadow_mode: true}
  - {name: now, requests: 5, period: 1m}
- key: shown
  shadow_mode: true
  rate_limit: {requests: 1, period: 1m}
- key: quota
  quota_mode: true
  rate_limit: {requests: 1, period: 1m}
- key: shared
  value: a*
  share_threshold: true
  rate_limit: {requests: 5, period: 1m}
- key: used
  rate_limit: {requests: 5, period: 1m, postpaid: true}
- key: free
  rate_limit: {unlimited: true}
- key: vip
  rate_limit: {name: vip, requests: 50, period: 1m, replaces: [{name: minute}]}
- key: none
  rate_limit: {requests: 0, period: 1m}
`

func TestExplainTellsWhy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(*rig)
		asked   []decide.Descriptor
		want    string
	}{
		{"two limits", nil, []decide.Descriptor{asking("user=x", 1)}, `
It would pass: of its limits the nearest is the limit minute of user=x (3 at once, then one every 20s), with 3 left.
allowed true by -1/-1 retry 0s
user=x: allowed, rule user
  limit minute (3 at once, then one every 20s, of the file) d|user=x#token_bucket:minute: 3 left, retry 0s, reset 0s
  limit day (100 at once, then one every 14m 24s, of the file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s
`},
		{"denied", func(r *rig) { r.take(asking("user=x", 3)) }, []decide.Descriptor{asking("user=y", 1), asking("user=x", 1)}, `
It would be denied: the limit minute of user=x (3 at once, then one every 20s) has 0 left, and would allow it in 20s.
allowed false by 1/0 retry 20s
user=y: allowed, rule user
  limit minute (3 at once, then one every 20s, of the file) d|user=y#token_bucket:minute: 3 left, retry 0s, reset 0s
  limit day (100 at once, then one every 14m 24s, of the file) d|user=y#token_bucket:day: 100 left, retry 0s, reset 0s
user=x: denied, rule user
  limit minute (3 at once, then one every 20s, of the file) d|user=x#token_bucket:minute: 0 left, retry 20s, reset 1m0s
  limit day (100 at once, then one every 14m 24s, of the file) d|user=x#token_bucket:day: 97 left, retry 0s, reset 43m12s
`},
		{"never", nil, []decide.Descriptor{asking("user=x", 4)}, `
It would be denied: the limit minute of user=x (3 at once, then one every 20s) never allows a cost of 4, more than its capacity of 3.
allowed false by 0/0 retry -1ns
user=x: denied, rule user
  limit minute (3 at once, then one every 20s, of the file) d|user=x#token_bucket:minute: 3 left, retry -1ns, reset 0s
  limit day (100 at once, then one every 14m 24s, of the file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s
`},
		{"a limit of nothing", nil, []decide.Descriptor{asking("none=x", 1)}, `
It would be denied: the limit without a name of none=x (denies always) never allows anything.
allowed false by 0/0 retry -1ns
none=x: denied, rule none
  limit  (denies always, of the file) d|none=x#token_bucket: 0 left, retry -1ns, reset 0s
`},
		{"the default plan", nil, []decide.Descriptor{asking("tenant=x", 1)}, `
It would pass: of its limits the nearest is the limit without a name of tenant=x (2 at once, then one every 30m), with 2 left.
allowed true by -1/-1 retry 0s
tenant=x: allowed, rule tenant, plan free
  limit  (2 at once, then one every 30m, of the file) d|tenant=x#token_bucket: 2 left, retry 0s, reset 0s
`},
		{"an assigned plan and numbers", func(r *rig) {
			r.assign("tenant=x", assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Requests: 7}, {Limit: "z", Requests: 1}}})
		}, []decide.Descriptor{asking("tenant=x", 1)}, `
It would pass: of its limits the nearest is the limit without a name of tenant=x (7 at once, then about one every 8m 34s), with 7 left.
allowed true by -1/-1 retry 0s
tenant=x: allowed, rule tenant, plan pro
  assignment tenant=x: plan pro in place of free; the limit without a name: 7 at once, then about one every 8m 34s in place of 20 at once, then one every 3m; nothing for the limit z, which the rule does not have
  limit  (7 at once, then about one every 8m 34s, of the assignment) d|tenant=x#token_bucket: 7 left, retry 0s, reset 0s
`},
		{"a plan that is gone", func(r *rig) { r.assign("tenant=x", assign.Terms{Plan: "proo"}) }, []decide.Descriptor{asking("tenant=x", 1)}, `
It would pass: of its limits the nearest is the limit without a name of tenant=x (2 at once, then one every 30m), with 2 left.
allowed true by -1/-1 retry 0s
tenant=x: allowed, rule tenant, plan free
  assignment tenant=x: the rule has no plan proo (pro?), so the default free stays
  limit  (2 at once, then one every 30m, of the file) d|tenant=x#token_bucket: 2 left, retry 0s, reset 0s
`},
		{"numbers of the request go before", func(r *rig) {
			r.assign("tenant=x", assign.Terms{Numbers: []assign.Numbers{{Requests: 7}}})
		}, []decide.Descriptor{bringing("tenant=x", 9, time.Hour)}, `
It would pass: of its limits the nearest is the limit without a name of tenant=x (9 at once, then one every 6m 40s), with 9 left.
allowed true by -1/-1 retry 0s
tenant=x: allowed, rule tenant, plan free
  assignment tenant=x: nothing, since the request brings its own numbers
  limit  (9 at once, then one every 6m 40s, of the request) d|tenant=x#token_bucket: 9 left, retry 0s, reset 0s
`},
		{"a block", func(r *rig) {
			r.table.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: entries("user=x")}, Terms: assign.Terms{Blocked: true}, Ends: assign.Ends{BlockedUntil: started.Add(time.Hour).UnixMicro()}})
		}, []decide.Descriptor{asking("user=x", 1)}, `
It would be denied: user=x is blocked until 2026-01-01T01:00:10Z.
allowed false by 0/-1 retry 1h0m0s
user=x: blocked, rule user
  assignment user=x: denies all that begins with user=x until 2026-01-01T01:00:10Z, then the file
`},
		{"parts that end", func(r *rig) {
			r.table.Put(&assign.Assignment{
				Subject: assign.Subject{Domain: "d", Entries: entries("tenant=x")},
				Terms:   assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Requests: 7}}},
				Ends:    assign.Ends{PlanUntil: started.Add(2 * time.Hour).UnixMicro(), NumbersUntil: []int64{started.Add(time.Hour).UnixMicro()}},
			})
		}, []decide.Descriptor{asking("tenant=x", 1)}, `
It would pass: of its limits the nearest is the limit without a name of tenant=x (7 at once, then about one every 8m 34s), with 7 left.
allowed true by -1/-1 retry 0s
tenant=x: allowed, rule tenant, plan pro
  assignment tenant=x: plan pro in place of free until 2026-01-01T02:00:10Z, then the default free; the limit without a name: 7 at once, then about one every 8m 34s in place of 20 at once, then one every 3m until 2026-01-01T01:00:10Z, then those of plan pro
  limit  (7 at once, then about one every 8m 34s, of the assignment) d|tenant=x#token_bucket: 7 left, retry 0s, reset 0s
`},
		{"unlimited for an hour", func(r *rig) {
			r.table.Put(&assign.Assignment{
				Subject: assign.Subject{Domain: "d", Entries: entries("tenant=x")},
				Terms:   assign.Terms{Plan: "pro", Unlimited: true, Numbers: []assign.Numbers{{Requests: 7}}},
				Ends:    assign.Ends{UnlimitedUntil: started.Add(time.Hour).UnixMicro()},
			})
		}, []decide.Descriptor{asking("tenant=x", 1)}, `
It would pass: it is unlimited.
allowed true by -1/-1 retry 0s
tenant=x: unlimited, rule tenant, plan pro
  assignment tenant=x: no limit until 2026-01-01T01:00:10Z, then plan pro with numbers of its own; plan pro, which limits nothing here while it is unlimited; nothing for the limit without a name while it is unlimited
`},
		{"freed", func(r *rig) { r.assign("user=x", assign.Terms{Unlimited: true}) }, []decide.Descriptor{asking("user=x", 1)}, `
It would pass: it is unlimited.
allowed true by -1/-1 retry 0s
user=x: unlimited, rule user
  assignment user=x: no limit
`},
		{"on trial", func(r *rig) { r.take(asking("tried=x", 1)) }, []decide.Descriptor{asking("tried=x", 1)}, `
It would pass: of its limits the nearest is the limit now of tried=x (5 at once, then one every 12s), with 4 left.
allowed true by -1/-1 retry 0s
tried=x: allowed, rule tried
  limit stricter (1 at once, then one a minute, of the file) d|tried=x#token_bucket:stricter: 0 left, retry 1m0s, reset 1m0s, shadow
  limit now (5 at once, then one every 12s, of the file) d|tried=x#token_bucket:now: 4 left, retry 0s, reset 12s
`},
		{"shadow mode", func(r *rig) { r.take(asking("shown=x", 1)) }, []decide.Descriptor{asking("shown=x", 1)}, `
It would pass, though shown=x is over a limit: that is in shadow mode.
allowed true by -1/-1 retry 0s
shown=x: shadowed, rule shown
  limit  (1 at once, then one a minute, of the file) d|shown=x#token_bucket: 0 left, retry 1m0s, reset 1m0s, shadow
  the rule has shadow_mode, so it never denies
`},
		{"quotas", func(r *rig) { r.take(asking("quota=x", 1)) }, []decide.Descriptor{asking("quota=x", 1), asking("quota=y", 1)}, `
It would pass: of its limits the nearest is the limit without a name of quota=x (1 at once, then one a minute), with 0 left.
allowed true by -1/-1 retry 0s
quota=x: denied, rule quota
  limit  (1 at once, then one a minute, of the file) d|quota=x#token_bucket: 0 left, retry 1m0s, reset 1m0s
  the rule has quota_mode: a request is denied only if all its quotas are exhausted
quota=y: allowed, rule quota
  limit  (1 at once, then one a minute, of the file) d|quota=y#token_bucket: 1 left, retry 0s, reset 0s
  the rule has quota_mode: a request is denied only if all its quotas are exhausted
`},
		{"shared", func(r *rig) { r.take(asking("shared=ax", 2)) }, []decide.Descriptor{asking("shared=ay", 1)}, `
It would pass: of its limits the nearest is the limit without a name of shared=ay (5 at once, then one every 12s), with 3 left.
allowed true by -1/-1 retry 0s
shared=ay: allowed, rule shared=a*
  limit  (5 at once, then one every 12s, of the file) d|shared==a*#token_bucket: 3 left, retry 0s, reset 24s
  all values that match "a*" have one counter (share_threshold)
`},
		{"postpaid", nil, []decide.Descriptor{asking("used=x", 9)}, `
It would pass: of its limits the nearest is the limit without a name of used=x (5 at once, then one every 12s, charged afterwards), with 5 left.
allowed true by -1/-1 retry 0s
used=x: allowed, rule used
  limit  (5 at once, then one every 12s, charged afterwards, of the file) d|used=x#token_bucket: 5 left, retry 0s, reset 0s
  the limit without a name is charged for what was used, whatever it decides (postpaid)
`},
		{"unlimited", nil, []decide.Descriptor{asking("free=x", 1)}, `
It would pass: it is unlimited.
allowed true by -1/-1 retry 0s
free=x: unlimited, rule free
`},
		{"replaced", nil, []decide.Descriptor{asking("user=x", 1), asking("vip=x", 1)}, `
It would pass: of its limits the nearest is the limit vip of vip=x (50 at once, then one every 1.2s), with 50 left.
allowed true by -1/-1 retry 0s
user=x: allowed, rule user
  limit day (100 at once, then one every 14m 24s, of the file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s
  the limit minute is replaced in this request by the rule of descriptor 1
vip=x: allowed, rule vip
  limit vip (50 at once, then one every 1.2s, of the file) d|vip=x#token_bucket:vip: 50 left, retry 0s, reset 0s
`},
		{"no rule", nil, []decide.Descriptor{asking("usr=x", 1)}, `
It would pass: no rule is for it.
allowed true by -1/-1 retry 0s
usr=x: unmatched, allowed
  no descriptor here has the key usr; did you mean user (FILE:3)?
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, explained)
			if tc.prepare != nil {
				tc.prepare(r)
			}
			got := strings.ReplaceAll(show(r.explain(tc.asked...)), r.live.Rules().Domain("d").File, "FILE")
			if got != strings.TrimPrefix(tc.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tc.want)
			}
		})
	}
}

func TestUnmatchedIsExplained(t *testing.T) {
	r := newRig(t, strings.Replace(explained, "domain: d\n", "domain: d\nunmatched: deny\n", 1))
	x := r.explain(asking("user=x", 1), asking("nothing=x", 1))
	if x.Allowed || x.DeniedBy != 1 || x.DeniedByLimit != -1 || x.Descriptors[1].Verdict != decide.VerdictUnmatchedDenied || x.RetryAfter != bucket.Never ||
		x.Summary != "It would be denied: no rule is for nothing=x, and its domain denies what has none." {
		t.Errorf("got %s", show(x))
	}
	c := r.NewCall()
	c.Domain = "e"
	c.Descriptors = append(c.Descriptors, asking("user=x", 1))
	x, err := r.Explain(context.Background(), c)
	if err != nil || x.Domain != nil || !x.Allowed || x.Summary != "It would pass: no limits have its domain." || len(x.Descriptors[0].Hints) != 1 {
		t.Errorf("of an unknown domain, got %s, %v", show(x), err)
	}
}

// A refusal of the daemon, and missing rules, give the same errors as with Decide.
func TestExplainFailsAsDecideDoes(t *testing.T) {
	refusal := errors.New("refused")
	r := newRig(t, explained, func(o *decide.Options) { o.Refuses = func() error { return refusal } })
	if _, err := r.Explain(context.Background(), r.call(asking("user=x", 1))); err != refusal {
		t.Errorf("got %v", err)
	}
	if x := r.explain(asking("other=x", 1)); !x.Allowed {
		t.Errorf("without a limit, got %s", show(x))
	}
}

func TestInspectShowsTheStates(t *testing.T) {
	r := newRig(t, explained)
	r.take(asking("user=x", 3))
	x, err := r.Inspect(context.Background(), "d", entries("user=x"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if l := x.Descriptors[0].Limits; len(l) != 2 || l[0].Remaining != 0 || l[0].RetryAfter != 20*time.Second || l[1].Remaining != 97 {
		t.Errorf("got %s", show(x))
	}
	if _, err := r.Inspect(context.Background(), "", entries("user=x"), "", ""); kindOf(err) != decide.Invalid {
		t.Errorf("without a domain: %v", err)
	}
}

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
		r := newRig(t, explained)
		got, err := r.Resettable(tc.domain, entries(tc.entries), tc.limit)
		if kindOf(err) != tc.kind || strings.Join(got.Limits, " ") != tc.limits || strings.Join(got.Keys, " ") != tc.keys || (got.Idle != "") != (err == nil && tc.keys == "") {
			t.Errorf("%s %s: got %+v, %v", tc.domain, tc.entries, got, err)
		}
	}
}

// After a reset the subject's limits are full, and others are as before.
func TestResettableStatesAreForgotten(t *testing.T) {
	r := newRig(t, explained)
	r.take(asking("user=x", 3))
	r.take(asking("user=y", 3))
	states, err := r.Resettable("d", entries("user=x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.store.Forget(states.Keys)
	if c := r.take(asking("user=x", 3)); c.Denied {
		t.Error("after a reset the subject is denied")
	}
	if c := r.take(asking("user=y", 1)); !c.Denied {
		t.Error("another subject was reset too")
	}
}

// A hostile request neither crashes Explain nor takes long.
func FuzzExplain(f *testing.F) {
	f.Add([]byte("user=x;tenant=\x00\xff,user"), uint64(1))
	f.Add([]byte("shared=a*;shared=aaaaaaaaaaaaaaa;=,=,=,="), uint64(1<<63))
	f.Add(bytes.Repeat([]byte("user=x,"), 40), uint64(0))
	f.Add(bytes.Repeat([]byte("user=X;"), 99), uint64(3))
	r := newRig(f, explained)
	r.assign("tenant=x", assign.Terms{Plan: "pro"})
	r.assign("user=x", assign.Terms{Blocked: true})
	f.Fuzz(func(t *testing.T, text []byte, cost uint64) {
		c := r.NewCall()
		c.Domain = "d"
		for _, part := range strings.Split(string(text), ";") {
			d := asking(part, cost)
			d.Own = decide.Override{Set: cost%3 == 0, Requests: uint64(cost), Period: time.Duration(cost%1000) * time.Millisecond, Names: &decide.OwnNames{Whole: "numbers"}}
			c.Descriptors = append(c.Descriptors, d)
		}
		if c.Check(false) != nil {
			return
		}
		began := time.Now()
		x, err := r.Explain(context.Background(), c)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if err != nil {
			return
		}
		if x.Summary == "" || len(x.Descriptors) != len(c.Descriptors) {
			t.Errorf("got %+v", x)
		}
	})
}

// What parts of an assignment have in common is said once, below its subject too.
func TestExplainSaysOnceThatNothingHolds(t *testing.T) {
	two := []assign.Numbers{{Limit: "day", Requests: 7}, {Limit: "minute", Requests: 5}}
	const longer = "the descriptor of its very entries alone"
	for _, tc := range []struct {
		asked string
		terms assign.Terms
		want  string
	}{
		{"user=x,route=/", assign.Terms{Unlimited: true}, "nothing here: it frees " + longer},
		{"user=x,route=/", assign.Terms{Numbers: two}, "nothing here: its numbers are for " + longer},
		{"user=x,route=/", assign.Terms{Unlimited: true, Numbers: two}, "nothing here: it frees, and has numbers for, " + longer},
		{"user=x,route=/", assign.Terms{Plan: "pro"}, "nothing here, since no rule matches"},
		{"user=x,route=/", assign.Terms{Plan: "pro", Unlimited: true, Numbers: two}, "nothing here: no rule matches, and it frees, and has numbers for, " + longer},
		{"user=x,route=/", assign.Terms{Blocked: true, Unlimited: true, Numbers: two}, "denies all that begins with user=x; nothing here: it frees, and has numbers for, " + longer},
		{"user=x", assign.Terms{Blocked: true, Unlimited: true, Numbers: two}, "denies all that begins with user=x; nothing, since the descriptor is refused"},
	} {
		r := newRig(t, explained)
		r.assign("user=x", tc.terms)
		if got := r.explain(asking(tc.asked, 1)).Descriptors[0].Assignments; len(got) != 1 || got[0].Effect != tc.want {
			t.Errorf("%s with %+v: %+v, want %q", tc.asked, tc.terms, got, tc.want)
		}
	}
}
