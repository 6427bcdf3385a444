package limitsfile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

const withPlans = `domain: d
unmatched: deny
descriptors:
- key: tenant
  shadow_mode: true
  plans:
    free: {requests: 100, period: 1m}
    pro:
    - {name: second, requests: 50, period: 1s}
    - {name: month, requests: 1000000, period: 30d}
    internal: {unlimited: true}
  plan: free
  descriptors:
  - key: route
    on_store_failure: deny
    plans: {free: {requests: 5, period: 1s}}
`

func TestPlansAreRulesOfOneDescriptor(t *testing.T) {
	t.Parallel()
	d := limitstest.Domain(t, withPlans)
	if d.Unmatched != rules.DenyUnmatched {
		t.Errorf("unmatched is %s", d.Unmatched)
	}
	r := d.Match(limitstest.Entries("tenant=acme"))
	if r.Plans == nil || len(r.Limits) != 0 || r.Unlimited || r.Plan != "" {
		t.Fatalf("the rule is %+v", r)
	}
	if names := r.Plans.Names(); !slices.Equal(names, []string{"free", "pro", "internal"}) {
		t.Errorf("plans %q", names)
	}
	if r.Plans.Default != r.Plans.Plan("free") || r.Plans.Plan("gold") != nil {
		t.Errorf("the default is %+v", r.Plans.Default)
	}
	pro := r.Plans.Plan("pro")
	if len(pro.Limits) != 2 || pro.Limits[1].Name != "month" || !pro.ShadowMode || pro.Path() != "tenant (plan pro)" || pro.Line != 8 {
		t.Errorf("pro is %+v of %q", pro, pro.Path())
	}
	if !r.Plans.Plan("internal").Unlimited {
		t.Error("internal has limits")
	}
	if below := d.Match(limitstest.Entries("tenant=acme,route=/")); below.Plans.Default != nil || below.Plans.Plan("free").Path() != "tenant / route (plan free)" {
		t.Errorf("the rule below is %+v", below)
	}
	if n := len(d.Rules()); n != 4 {
		t.Errorf("%d rules", n)
	}
}

func TestTableShowsPlans(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "limits.yaml", withPlans)
	r, err := limitsfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `domain d (` + path + `:1), denies what has no rule
  RULE                         NAME    ALGORITHM     LIMIT
  tenant (plan free)           -       token_bucket  100 at once, then 100 a minute; the default, shadow
  tenant (plan pro)            second  token_bucket  50 at once, then 50 a second; shadow
                               month   token_bucket  1,000,000 at once, then about one every 2.59s
  tenant (plan internal)       -       -             unlimited; shadow
  tenant / route (plan free)   -       token_bucket  5 at once, then 5 a second; on store failure: deny
`
	got := table(t, r)
	if squeeze(got) != squeeze(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// squeeze makes one space of several.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

func TestBadPlansAreRefused(t *testing.T) {
	t.Parallel()
	schema := limitsSchema(t)
	for _, c := range []struct{ name, text, want string }{
		{"no mapping", "plans: [free]", `descriptors[0].plans: found a list; allowed: plans by name, such as free: {requests: 100, period: 1m}`},
		{"none", "plans: {}", `descriptors[0].plans: found no plan; allowed: at least one of the plans by name, such as free: {requests: 100, period: 1m}`},
		{"a plan again", "plans: {a: {unlimited: true}, a: {unlimited: true}}", `descriptors[0].plans.a: found the plan "a" again; allowed: each plan once`},
		{"a plan without numbers", "plans: {a: {name: n}}", `descriptors[0].plans.a: found no numbers; allowed: requests with period or calendar, or requests_per_unit with unit`},
		{"a plan that is no mapping", "plans: {a: 5}", `descriptors[0].plans.a: found the number 5; allowed: a rate_limit, with unlimited, name, algorithm, requests, period, calendar, time_zone, starts, requests_per_unit, unit, burst, sub_windows, hold, postpaid, block_for, lease, replaces, enforce`},
		{"wrong numbers in a list", "plans: {a: [{name: n, requests: x, period: 1s}]}", `descriptors[0].plans.a[0].requests: found the text "x"; allowed: a whole number from 0 to 4503599627370496`},
		{"an empty list", "plans: {a: []}", `descriptors[0].plans.a: found an empty list; allowed: at least one limit`},
		{"a default that is no plan", "plans: {free: {unlimited: true}}\n  plan: fre", `descriptors[0].plan: found the text "fre" (free?); allowed: free`},
		{"a default without plans", "plan: free", `descriptors[0].plan: found plan without plans; allowed: plan beside plans: the one for subjects without an assigned plan`},
		{"plans beside a limit", "plans: {a: {unlimited: true}}\n  rate_limit: {unlimited: true}", `descriptors[0].rate_limit: found rate_limit beside plans; allowed: one of them`},
		{"one counter for all below a pattern", "value: 'x*'\n  share_threshold: true\n  descriptors: [{key: u, plans: {a: {unlimited: true}}}]", `descriptors[0].share_threshold: found share_threshold above plans; allowed: one of them: each value has a plan of its own, so they cannot share a counter`},
		{"one counter for all", "value: 'x*'\n  share_threshold: true\n  plans: {a: {unlimited: true}}", `descriptors[0].share_threshold: found share_threshold beside plans; allowed: one of them: each value has a plan of its own, so they cannot share a counter`},
		{"a name without characters", "plans: {'': {unlimited: true}}", `descriptors[0].plans: found an empty text; allowed: the name of a plan of 1 to 64 bytes without control characters`},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema.refuses(t, c.name, limitstest.Descriptor(c.text))
			_, err := limitstest.Load(t, limitstest.Descriptor(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got:  %v\nwant: %s", err, c.want)
			}
		})
	}
	_, err := limitstest.Load(t, "domain: d\nunmatched: den\n")
	if want := `unmatched: found the text "den" (deny?); allowed: allow, deny`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A plan that is still there after a reload goes on.
func TestPlansKeepTheirCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := int64(0)
	live := limitsfile.Options{Clock: func() int64 { return at }}.NewLive(dir, nil)
	reload := func(text string) *rules.Domain {
		t.Helper()
		at++
		filetest.Write(t, dir, "limits.yaml", text)
		if err := live.Reload(); err != nil {
			t.Fatal(err)
		}
		return live.Rules().Domain("d")
	}
	plans := func(list, of string) string {
		return "domain: d\ndescriptors:\n- {key: a, plans: {" + list + "}, plan: " + of + "}\n"
	}
	const free, pro = "free: {requests: 1, period: 1s}", "pro: {requests: 9, period: 1s}"
	rule := reload(plans(free+", "+pro, "free")).Match(limitstest.Entries("a=x"))
	d := live.Rules().Domain("d")
	rule.Plans.Plan("pro").Count(tally.Denied, limitstest.Entries("a=x"))
	for range 3 {
		d.WithoutRule.Add(tally.Denied)
	}
	for _, c := range []struct {
		name, text string
		since      int64 // of pro
	}{
		{"the other plan changes", plans("free: {requests: 2, period: 1s}, "+pro, "free"), 0},
		{"another default", plans(free+", "+pro, "pro"), 3},
		{"a plan comes", plans("more: {unlimited: true}, "+free+", "+pro, "pro"), 3},
		{"a plan goes", plans(free+", "+pro, "pro"), 5},
		{"its numbers change", plans(free+", pro: {requests: 8, period: 1s}", "pro"), 6},
	} {
		d := reload(c.text)
		got := d.Match(limitstest.Entries("a=x")).Plans.Plan("pro")
		if got.Counts.Of(tally.Denied) != 1 || d.WithoutRule.Of(tally.Denied) != 3 {
			t.Errorf("%s: the counts begin again", c.name)
		}
		if got.Since != c.since {
			t.Errorf("%s: the plan is in force since %d, want %d", c.name, got.Since, c.since)
		}
	}
}

func TestFingerprintKnowsPlans(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for name, text := range map[string]string{
		"a rule":          "rate_limit: {requests: 1, period: 1s}",
		"a plan":          "plans: {a: {requests: 1, period: 1s}}",
		"another name":    "plans: {b: {requests: 1, period: 1s}}",
		"a default":       "plans: {a: {requests: 1, period: 1s}}, plan: a",
		"two plans":       "plans: {a: {requests: 1, period: 1s}, b: {requests: 2, period: 1s}}",
		"changed numbers": "plans: {a: {requests: 2, period: 1s}, b: {requests: 1, period: 1s}}",
	} {
		f := limitstest.Fingerprint(t, "domain: d\ndescriptors:\n- {key: k, "+text+"}\n")
		if other := all[f]; other != "" {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		all[f] = name
	}
	order := func(list string) string {
		return limitstest.Fingerprint(t, "domain: d\ndescriptors:\n- {key: k, plans: {"+list+"}}\n")
	}
	if order("a: {unlimited: true}, b: {requests: 1, period: 1s}") != order("b: {requests: 1, period: 1s}, a: {unlimited: true}") {
		t.Error("the order of plans counts")
	}
	if limitstest.Fingerprint(t, "domain: d\n") == limitstest.Fingerprint(t, "domain: d\nunmatched: deny\n") {
		t.Error("unmatched does not count")
	}
}

func TestDomainInTwoFilesSaysUnmatchedOnce(t *testing.T) {
	t.Parallel()
	o := limitsfile.Options{MergeDomains: true}
	for _, c := range []struct {
		first, second string
		want          rules.Unmatched
		err           string
	}{
		{"", "unmatched: deny\n", rules.DenyUnmatched, ""},
		{"unmatched: deny\n", "", rules.DenyUnmatched, ""},
		{"unmatched: deny\n", "unmatched: deny\n", rules.DenyUnmatched, ""},
		{"unmatched: deny\n", "unmatched: allow\n", 0, "unmatched: allow, but the domain has deny in another file"},
	} {
		dir := t.TempDir()
		filetest.Write(t, dir, "a.yaml", "domain: d\n"+c.first)
		filetest.Write(t, dir, "b.yaml", "domain: d\n"+c.second)
		r, err := o.Load(dir)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q and %q: %v", c.first, c.second, err)
			}
		case err != nil:
			t.Error(err)
		case r.Domain("d").Unmatched != c.want:
			t.Errorf("%q and %q give %s", c.first, c.second, r.Domain("d").Unmatched)
		}
	}
}
