package explain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
	"github.com/ratelimitd/ratelimitd/internal/explain"
)

func newRig(t testing.TB, change ...func(*decide.Options)) *decidetest.Rig {
	return decidetest.NewRig(t, explained, change...)
}

func request(r *decidetest.Rig, descriptors ...decide.Descriptor) *explain.Explanation {
	r.T.Helper()
	x, err := explain.Request(context.Background(), r.Decider, r.Call(descriptors...))
	if err != nil {
		r.T.Fatal(err)
	}
	return x
}

func put(r *decidetest.Rig, entries string, terms assign.Terms) {
	r.Assigned.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries(entries)}, Base: assign.Layer{Terms: terms}, ETag: "1"})
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
  descriptors:
  - key: user
    plans: {free: {requests: 1, period: 1h}, pro: {requests: 10, period: 1h}}
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
- key: job
  descriptors:
  - {key: id, rate_limit: {algorithm: concurrency, requests: 3, hold: 1m}}
`

var verdicts = map[explain.Verdict]string{
	explain.Allowed: "allowed", explain.Denied: "denied", explain.Shadowed: "shadowed", explain.UnmatchedAllowed: "unmatched, allowed",
	explain.UnmatchedDenied: "unmatched, denied", explain.Unlimited: "unlimited", explain.Blocked: "blocked",
}

// show returns the facts as text: a line for the request, one for each descriptor, and one
// for each of its assignments and limits.
func show(x *explain.Explanation) string {
	sources := map[decide.Source]string{decide.FromFile: "file", decide.FromAssignment: "assignment", decide.FromRequest: "request"}
	var s strings.Builder
	fmt.Fprintf(&s, "allowed %v by %d/%d retry %s\n", x.Allowed, x.DeniedBy, x.DeniedByLimit, x.RetryAfter)
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		fmt.Fprint(&s, verdicts[d.Verdict])
		if d.Rule != nil {
			fmt.Fprintf(&s, ", rule %s, line %d", d.Rule.Path(), d.Rule.Line)
		} else {
			fmt.Fprintf(&s, ", %s", d.Why())
		}
		if d.Plan != nil {
			fmt.Fprintf(&s, ", plan %s", d.Plan.Plan)
		}
		fmt.Fprintln(&s)
		for _, a := range d.Assignments {
			fmt.Fprintf(&s, "  assignment to %d entries, applies %v\n", len(a.Entries), a.Applies)
		}
		for _, l := range d.Limits {
			fmt.Fprintf(&s, "  limit %s of %d (%s) %s: %d left, retry %s, reset %s, shadow %v\n", l.Name, l.Capacity, sources[l.Source], l.Key, l.Remaining, l.RetryAfter, l.ResetAfter, l.Shadow)
		}
	}
	return s.String()
}

func TestFactsOfARequest(t *testing.T) {
	asking, bringing := decidetest.Asking, decidetest.Bringing
	for _, tc := range []struct {
		name    string
		prepare func(*decidetest.Rig)
		asked   []decide.Descriptor
		want    string
	}{
		{"two limits", nil, []decide.Descriptor{asking("user=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule user, line 3
  limit minute of 3 (file) d|user=x#token_bucket:minute: 3 left, retry 0s, reset 0s, shadow false
  limit day of 100 (file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s, shadow false
`},
		{"denied", func(r *decidetest.Rig) { r.Take(asking("user=x", 3)) }, []decide.Descriptor{asking("user=y", 1), asking("user=x", 1)}, `
allowed false by 1/0 retry 20s
allowed, rule user, line 3
  limit minute of 3 (file) d|user=y#token_bucket:minute: 3 left, retry 0s, reset 0s, shadow false
  limit day of 100 (file) d|user=y#token_bucket:day: 100 left, retry 0s, reset 0s, shadow false
denied, rule user, line 3
  limit minute of 3 (file) d|user=x#token_bucket:minute: 0 left, retry 20s, reset 1m0s, shadow false
  limit day of 100 (file) d|user=x#token_bucket:day: 97 left, retry 0s, reset 43m12s, shadow false
`},
		{"never", nil, []decide.Descriptor{asking("user=x", 4)}, `
allowed false by 0/0 retry -1ns
denied, rule user, line 3
  limit minute of 3 (file) d|user=x#token_bucket:minute: 3 left, retry -1ns, reset 0s, shadow false
  limit day of 100 (file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s, shadow false
`},
		{"the default plan", nil, []decide.Descriptor{asking("tenant=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule tenant, line 7, plan free
  limit  of 2 (file) d|tenant=x#token_bucket: 2 left, retry 0s, reset 0s, shadow false
`},
		{"an assigned plan and numbers", func(r *decidetest.Rig) {
			put(r, "tenant=x", assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Requests: 7}, {Limit: "z", Requests: 1}}})
		}, []decide.Descriptor{asking("tenant=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule tenant, line 7, plan pro
  assignment to 1 entries, applies true
  limit  of 7 (assignment) d|tenant=x#token_bucket: 7 left, retry 0s, reset 0s, shadow false
`},
		{"a plan that is gone", func(r *decidetest.Rig) { put(r, "tenant=x", assign.Terms{Plan: "proo"}) }, []decide.Descriptor{asking("tenant=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule tenant, line 7, plan free
  assignment to 1 entries, applies false
  limit  of 2 (file) d|tenant=x#token_bucket: 2 left, retry 0s, reset 0s, shadow false
`},
		{"numbers of the request go before", func(r *decidetest.Rig) {
			put(r, "tenant=x", assign.Terms{Numbers: []assign.Numbers{{Requests: 7}}})
		}, []decide.Descriptor{bringing("tenant=x", 9, time.Hour)}, `
allowed true by -1/-1 retry 0s
allowed, rule tenant, line 7, plan free
  assignment to 1 entries, applies false
  limit  of 9 (request) d|tenant=x#token_bucket#3600000: 9 left, retry 0s, reset 0s, shadow false
`},
		{"the longer beginning's plan", func(r *decidetest.Rig) {
			put(r, "tenant=x", assign.Terms{Plan: "pro"})
			put(r, "tenant=x,user=y", assign.Terms{Plan: "free"})
		}, []decide.Descriptor{asking("tenant=x,user=y", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule tenant / user, line 13, plan free
  assignment to 1 entries, applies false
  assignment to 2 entries, applies true
  limit  of 1 (file) d|tenant=x|user=y#token_bucket: 1 left, retry 0s, reset 0s, shadow false
`},
		{"a block of its beginning", func(r *decidetest.Rig) {
			put(r, "tenant=x", assign.Terms{Blocked: true})
			put(r, "tenant=x,user=y", assign.Terms{Plan: "pro"})
		}, []decide.Descriptor{asking("tenant=x,user=y", 1)}, `
allowed false by 0/-1 retry -1ns
blocked, rule tenant / user, line 13, plan pro
  assignment to 1 entries, applies true
  assignment to 2 entries, applies false
`},
		{"freed", func(r *decidetest.Rig) { put(r, "user=x", assign.Terms{Unlimited: true}) }, []decide.Descriptor{asking("user=x", 1)}, `
allowed true by -1/-1 retry 0s
unlimited, rule user, line 3
  assignment to 1 entries, applies true
`},
		{"on trial", func(r *decidetest.Rig) { r.Take(asking("tried=x", 1)) }, []decide.Descriptor{asking("tried=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule tried, line 16
  limit stricter of 1 (file) d|tried=x#token_bucket:stricter: 0 left, retry 1m0s, reset 1m0s, shadow true
  limit now of 5 (file) d|tried=x#token_bucket:now: 4 left, retry 0s, reset 12s, shadow false
`},
		{"shadow mode", func(r *decidetest.Rig) { r.Take(asking("shown=x", 1)) }, []decide.Descriptor{asking("shown=x", 1)}, `
allowed true by -1/-1 retry 0s
shadowed, rule shown, line 20
  limit  of 1 (file) d|shown=x#token_bucket: 0 left, retry 1m0s, reset 1m0s, shadow true
`},
		{"quotas", func(r *decidetest.Rig) { r.Take(asking("quota=x", 1)) }, []decide.Descriptor{asking("quota=x", 1), asking("quota=y", 1)}, `
allowed true by -1/-1 retry 0s
denied, rule quota, line 23
  limit  of 1 (file) d|quota=x#token_bucket: 0 left, retry 1m0s, reset 1m0s, shadow false
allowed, rule quota, line 23
  limit  of 1 (file) d|quota=y#token_bucket: 1 left, retry 0s, reset 0s, shadow false
`},
		{"shared", func(r *decidetest.Rig) { r.Take(asking("shared=ax", 2)) }, []decide.Descriptor{asking("shared=ay", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule shared=a*, line 26
  limit  of 5 (file) d|shared==a*#token_bucket: 3 left, retry 0s, reset 24s, shadow false
`},
		{"unlimited", nil, []decide.Descriptor{asking("free=x", 1)}, `
allowed true by -1/-1 retry 0s
unlimited, rule free, line 32
`},
		{"replaced", nil, []decide.Descriptor{asking("user=x", 1), asking("vip=x", 1)}, `
allowed true by -1/-1 retry 0s
allowed, rule user, line 3
  limit day of 100 (file) d|user=x#token_bucket:day: 100 left, retry 0s, reset 0s, shadow false
allowed, rule vip, line 34
  limit vip of 50 (file) d|vip=x#token_bucket:vip: 50 left, retry 0s, reset 0s, shadow false
`},
		{"no rule", nil, []decide.Descriptor{asking("usr=x", 1)}, `
allowed true by -1/-1 retry 0s
unmatched, allowed, no descriptor here has the key usr; did you mean user (FILE:3)?
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			if tc.prepare != nil {
				tc.prepare(r)
			}
			got := strings.ReplaceAll(show(request(r, tc.asked...)), r.Live.Rules().Domain("d").File, "FILE")
			if got != strings.TrimPrefix(tc.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tc.want)
			}
		})
	}
}

func TestUnmatchedIsExplained(t *testing.T) {
	r := decidetest.NewRig(t, strings.Replace(explained, "domain: d\n", "domain: d\nunmatched: deny\n", 1))
	x := request(r, decidetest.Asking("user=x", 1), decidetest.Asking("nothing=x", 1))
	if x.Allowed || x.DeniedBy != 1 || x.DeniedByLimit != -1 || x.Descriptors[1].Verdict != explain.UnmatchedDenied || x.RetryAfter != bucket.Never ||
		x.Descriptors[1].Miss != trace.MissedKey {
		t.Errorf("got %s", show(x))
	}
	c := r.NewCall()
	c.Domain = "D"
	c.Descriptors = append(c.Descriptors, decidetest.Asking("user=x", 1))
	x, err := explain.Request(context.Background(), r.Decider, c)
	if err != nil || x.Domain != nil || x.NearDomain != "d" || !x.Allowed || len(x.Descriptors[0].Entries) != 1 {
		t.Errorf("of an unknown domain, got %s, %v", show(x), err)
	}
}

// Layers on top hide what lies below until they end, and a block says for how long it denies.
func TestLayersEnd(t *testing.T) {
	r := newRig(t)
	layer := func(hours time.Duration, terms assign.Terms) assign.Layer {
		return assign.Layer{Terms: terms, Until: decidetest.Started.Add(hours * time.Hour).UnixMicro()}
	}
	r.Assigned.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries("tenant=x")},
		Base:    assign.Layer{Terms: assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Requests: 50}}}},
		Layers:  []assign.Layer{layer(2, assign.Terms{Numbers: []assign.Numbers{{Requests: 60}}}), layer(1, assign.Terms{Blocked: true})},
	})
	for i, want := range []string{
		"allowed false by 0/-1 retry 1h0m0s\nblocked, rule tenant, line 7, plan pro\n  2 layers, applies true\n",
		"allowed true by -1/-1 retry 0s\nallowed, rule tenant, line 7, plan pro\n  1 layers, applies true\n  60",
		"allowed true by -1/-1 retry 0s\nallowed, rule tenant, line 7, plan pro\n  0 layers, applies true\n  50",
	} {
		x := request(r, decidetest.Asking("tenant=x", 1))
		facts, _, _ := strings.Cut(show(x), "  assignment")
		a := x.Descriptors[0].Assignments[0]
		facts += fmt.Sprintf("  %d layers, applies %v\n", len(a.Layers), a.Applies)
		for _, l := range x.Descriptors[0].Limits {
			facts += fmt.Sprintf("  %d", l.Requests)
		}
		if facts != want || a.Base.Plan != "pro" {
			t.Errorf("after %d hours, got\n%s\nwant\n%s", i, facts, want)
		}
		r.Clock.Add(time.Hour.Microseconds())
	}
}

// A refusal of the daemon gives the same error as with Decide.
func TestExplainFailsAsDecideDoes(t *testing.T) {
	refusal := errors.New("refused")
	r := newRig(t, func(o *decide.Options) { o.Refuses = func() error { return refusal } })
	if _, err := explain.Request(context.Background(), r.Decider, r.Call(decidetest.Asking("user=x", 1))); err != refusal {
		t.Errorf("got %v", err)
	}
	if x := request(r, decidetest.Asking("other=x", 1)); !x.Allowed {
		t.Errorf("without a limit, got %s", show(x))
	}
}

func TestSubjectShowsTheStates(t *testing.T) {
	r := newRig(t)
	r.Take(decidetest.Asking("user=x", 3))
	x, err := explain.Subject(context.Background(), r.Decider, "d", decidetest.Entries("user=x"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if l := x.Descriptors[0].Limits; len(l) != 2 || l[0].Remaining != 0 || l[0].RetryAfter != 20*time.Second || l[1].Remaining != 97 {
		t.Errorf("got %s", show(x))
	}
	var invalid *decide.Error
	if _, err := explain.Subject(context.Background(), r.Decider, "", decidetest.Entries("user=x"), "", ""); !errors.As(err, &invalid) || invalid.Kind != decide.Invalid {
		t.Errorf("without a domain: %v", err)
	}
}

// A subject has its holders, and a request with an ID what the ID has charged; what names
// a holder has that one alone.
func TestHoldersAndBills(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	take := func(id string, d decide.Descriptor) {
		c := r.Call(d)
		c.ID, c.SettleWithin, c.HasSettleWithin = id, time.Hour, true
		if err := r.Decide(ctx, c); err != nil || c.Denied {
			t.Fatalf("denied %t, %v", c.Denied, err)
		}
	}
	r.Take(decidetest.Asking("job=pool,id=1", 1))
	r.Take(decidetest.Asking("job=pool,id=2", 1))
	for entries, want := range map[string][]string{"job=pool,id=": {"1", "2"}, "job=pool,id=2": {"2"}, "job=pool,id=3": nil} {
		x, err := explain.Subject(ctx, r.Decider, "d", decidetest.Entries(entries), "", "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range x.Descriptors[0].Limits[0].Held.First {
			got = append(got, h.Holder)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s is held by %q, want %q", entries, got, want)
		}
	}
	take("one", decidetest.Asking("user=x", 2))
	for id, want := range map[string]int64{"one": 2, "two": 0} {
		x, err := explain.Subject(ctx, r.Decider, "d", decidetest.Entries("user=x"), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if b := x.Descriptors[0].Limits[1].Bill; b.Total() != want {
			t.Errorf("%s has charged %d, want %d", id, b.Total(), want)
		}
	}
}

// A hostile request does not crash an explanation.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("user=x;tenant=\x00\xff,user"), uint64(1))
	f.Add([]byte("shared=a*;shared=aaaaaaaaaaaaaaa;=,=,=,="), uint64(1<<63))
	f.Add(bytes.Repeat([]byte("user=x,"), 40), uint64(0))
	f.Add(bytes.Repeat([]byte("user=X;"), 99), uint64(3))
	r := newRig(f)
	put(r, "tenant=x", assign.Terms{Plan: "pro"})
	put(r, "user=x", assign.Terms{Blocked: true})
	f.Fuzz(func(t *testing.T, text []byte, cost uint64) {
		c := r.NewCall()
		c.Domain = "d"
		for _, part := range strings.Split(string(text), ";") {
			d := decidetest.Asking(part, cost)
			d.Own = decide.Override{Set: cost%3 == 0, Requests: uint64(cost), Period: time.Duration(cost%1000) * time.Millisecond, Names: &decide.OwnNames{Whole: "numbers"}}
			c.Descriptors = append(c.Descriptors, d)
		}
		if c.Check(false) != nil {
			return
		}
		x, err := explain.Request(context.Background(), r.Decider, c)
		if err != nil {
			return
		}
		for i := range x.Descriptors {
			if d := &x.Descriptors[i]; d.Rule == nil && d.Why() == "" {
				t.Errorf("descriptor %d has no rule, for no reason", i)
			}
		}
		if len(x.Descriptors) != len(c.Descriptors) {
			t.Errorf("got %+v", x)
		}
	})
}

func TestExplanationsNameNetworks(t *testing.T) {
	t.Parallel()
	r := decidetest.NewRig(t, `domain: d
descriptors:
- {key: a, cidr: [10.0.0.0/8, 10.1.0.0/16], rate_limit: {requests: 1, period: 1m}}
- {key: a, network: {ipv6: 64}, descriptors: [{key: path, rate_limit: {requests: 1, period: 1m}}]}
`)
	put(r, "a=2001:db8::/64", assign.Terms{Blocked: true})
	for _, c := range []struct{ entries, want, assigned string }{
		{"a=::ffff:10.1.2.3", "[{a 10.1.2.3 10.1.0.0/16}]", "[]"},
		{"a=[2001:db8::1]:80,path=1.2.3.4", "[{a 2001:db8::/64 }]", "[a=2001:db8::/64]"},
		{"a=2001:db8::/64,path=x", "[{a 2001:db8::/64 }]", "[a=2001:db8::/64]"},
		{"a=unknown,path=x", "[]", "[]"},
		{"b=10.1.2.3", "[]", "[]"},
	} {
		d := request(r, decidetest.Asking(c.entries, 1)).Descriptors[0]
		assigned := []string{}
		for _, a := range d.Assignments {
			assigned = append(assigned, a.Entries[0].Key+"="+a.Entries[0].Value)
		}
		if got := fmt.Sprint(d.Networks); got != c.want || fmt.Sprint(assigned) != c.assigned {
			t.Errorf("%s: got %s, %s; want %s, %s", c.entries, got, assigned, c.want, c.assigned)
		}
	}
}
