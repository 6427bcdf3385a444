package diff_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/diff"
)

// diffTexts returns the differences as lines.
func diffTexts(t *testing.T, before, after string) []string {
	t.Helper()
	old, err := limitstest.Load(t, before)
	if err != nil {
		t.Fatal(err)
	}
	now, err := limitstest.Load(t, after)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range diff.Between(old, now) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", d.Effect, d.Rule, d.Text)))
	}
	return lines
}

func TestDiffSaysWhatChangesForWhom(t *testing.T) {
	t.Parallel()
	const user = "domain: d\ndescriptors:\n- {key: user, rate_limit: {requests: 10, period: 1m}}\n"
	rule := func(fields string) string { return "domain: d\ndescriptors:\n- {key: user, " + fields + "}\n" }
	for _, c := range []struct {
		name, before, after string
		want                []string
	}{
		{"the same otherwise written", user, "descriptors: [{rate_limit: {period: 60s, requests: 10, algorithm: token_bucket}, key: user}]\ndomain: d", nil},
		{"more", user, rule("rate_limit: {requests: 15, period: 1m}"),
			[]string{"looser user: 15 at once, then one every 4s; until now 10 at once, then one every 6s: 50 % more"}},
		{"much more", user, rule("rate_limit: {requests: 25, period: 1m}"),
			[]string{"looser user: 25 at once, then one every 2.4s; until now 10 at once, then one every 6s: 2.5 times as much"}},
		{"less", user, rule("rate_limit: {requests: 10, period: 4m, burst: 5}"),
			[]string{"stricter user: 5 at once, then one every 24s; until now 10 at once, then one every 6s: over time 75 % less, at once 50 % less"}},
		{"neither", user, rule("rate_limit: {requests: 1200, period: 1d}"),
			[]string{"changed user: 1,200 at once, then one every 1m 12s; until now 10 at once, then one every 6s: over time 91.7 % less, at once 120 times as much"}},
		{"nothing", user, rule("rate_limit: {requests: 0, period: 1m}"),
			[]string{"stricter user: denies always; until now 10 at once, then one every 6s"}},
		{"an algorithm", user, rule("rate_limit: {requests: 10, period: 1m, algorithm: fixed_window}"),
			[]string{"reset user: fixed_window; until now token_bucket: counts start from zero"}},
		{"a name", user, rule("rate_limit: {name: n, requests: 10, period: 1m}"),
			[]string{"reset user: the limit's name is n instead of none: counts start from zero"}},
		{"requests in flight", user, rule("rate_limit: {algorithm: concurrency, requests: 10, hold: 1m}"), []string{
			"reset user: concurrency; until now token_bucket: counts start from zero",
			"changed user: 10 in flight, each free after 1m of silence; until now 10 at once, then one every 6s"}},
		{"more in flight", rule("rate_limit: {algorithm: concurrency, requests: 10, hold: 1m}"), rule("rate_limit: {algorithm: concurrency, requests: 11, hold: 2m}"),
			[]string{"looser user: 11 in flight, each free after 2m of silence; until now 10 in flight, each free after 1m of silence"}},
		{"another hold", rule("rate_limit: {algorithm: concurrency, requests: 10, hold: 1m}"), rule("rate_limit: {algorithm: concurrency, requests: 10, hold: 30s}"),
			[]string{"changed user: 10 in flight, each free after 30s of silence; until now 10 in flight, each free after 1m of silence"}},
		{"a calendar's number", rule("rate_limit: {requests: 10, calendar: month}"), rule("rate_limit: {requests: 20, calendar: month}"),
			[]string{"looser user: 20 requests a calendar month in UTC; until now 10 requests a calendar month in UTC: 2 times as much"}},
		{"a calendar's start", rule("rate_limit: {requests: 10, calendar: month}"), rule("rate_limit: {requests: 20, calendar: month, starts: 15, time_zone: Europe/Berlin}"),
			[]string{"changed user: 20 requests a calendar month from day 15 in Europe/Berlin; until now 10 requests a calendar month in UTC: what was counted counts in the new window that contains its last use, and in no other; a start that moved begins a window now: if it lies after the last use, the whole limit is there again"}},
		{"a calendar in place of a period", rule("rate_limit: {requests: 10, period: 1d, algorithm: fixed_window}"), rule("rate_limit: {requests: 10, calendar: day}"),
			[]string{"changed user: 10 requests a calendar day in UTC; until now 10 requests a day: what was counted counts in the new window that contains its last use, and in no other"}},
		{"a window's period", rule("rate_limit: {requests: 10, period: 1d, algorithm: fixed_window}"), rule("rate_limit: {requests: 10, period: 5s, algorithm: fixed_window}"),
			[]string{"looser user: 10 requests every 5 seconds; until now 10 requests a day: over time 1.728e+04 times as much, at once the same; what was counted counts in the new window that contains its last use, and in no other"}},
		{"a lease", rule("rate_limit: {requests: 1000, period: 1s}"), rule("rate_limit: {requests: 1000, period: 1s, lease: 100ms}"),
			[]string{"stricter user: decided in the caller for up to 100ms; bursts of 900 instead of 1,000; until now no lease"}},
		{"a shorter lease", rule("rate_limit: {requests: 9, period: 1m, algorithm: sliding_window, lease: 1s}"), rule("rate_limit: {requests: 9, period: 1m, algorithm: sliding_window, lease: 10ms}"),
			[]string{"looser user: decided in the caller for up to 10ms; each request counts 10ms longer; until now decided in the caller for up to 1s; each request counts 1s longer"}},
		{"no lease on a window", rule("rate_limit: {requests: 9, calendar: day, lease: 1s}"), rule("rate_limit: {requests: 9, calendar: day}"),
			[]string{"changed user: no lease; until now decided in the caller for up to 1s"}},
		{"unlimited", user, rule("rate_limit: {unlimited: true}"),
			[]string{"looser user: unlimited; until now 10 at once, then one every 6s"}},
		{"block_for", user, rule("rate_limit: {requests: 10, period: 1m, block_for: 10m}"), []string{"stricter user: block_for 10m instead of no block_for"}},
		{"no block_for", rule("rate_limit: {requests: 10, period: 1m, block_for: 10m}"), user, []string{"looser user: no block_for instead of block_for 10m"}},
		{"flags", user, rule("rate_limit: {requests: 10, period: 1m, postpaid: true}, shadow_mode: true, on_store_failure: deny"), []string{
			"changed user: postpaid true instead of false",
			"changed user: on store failure: deny instead of as failure.mode says",
			"looser user: shadow_mode: its limits do not deny any more",
		}},
		{"one limit for another",
			rule("rate_limits: [{name: s, requests: 1, period: 1s}, {name: d, requests: 9, period: 1d}]"),
			rule("rate_limits: [{name: s, requests: 2, period: 1s}, {name: h, requests: 9, period: 1h}]"), []string{
				"looser user: s: 2 at once, then 2 a second; until now 1 at once, then one a second: 2 times as much",
				"stricter user: one more limit, h: 9 at once, then one every 6m 40s",
				"looser user: one limit less: until now d: 9 at once, then one every 2h 40m",
			}},
		{"a rule for one", user, user + "- {key: user, value: alice, rate_limit: {requests: 90, period: 1m}}\n",
			[]string{"matched user=alice: a new rule, 90 at once, then 90 a minute; until now 10 at once, then one every 6s of the rule user"}},
		{"no rule for one", user + "- {key: user, value: alice, rate_limit: {requests: 90, period: 1m}}\n", user,
			[]string{"matched user=alice: the rule is gone; now 10 at once, then one every 6s of the rule user, until now 90 at once, then 90 a minute"}},
		{"one without a limit", user, user + "- {key: user, value: alice}\n",
			[]string{"looser user=alice: a new descriptor without a limit; until now 10 at once, then one every 6s of the rule user"}},
		{"a rule below", user, rule("rate_limit: {requests: 10, period: 1m}, descriptors: [{key: path, rate_limit: {requests: 1, period: 1s}}]"),
			[]string{"stricter user / path: a new rule, 1 at once, then one a second; until now no limit"}},
		{"no rule", user, "domain: d", []string{"looser user: the rule is gone, and there is no limit any more; until now 10 at once, then one every 6s"}},
		{"places", "domain: d\nhash_tag: user\ndescriptors:\n- {key: user, rate_limit: {requests: 10, period: 1m}}\n", user,
			[]string{"reset : hash_tag none instead of user: keys move, so on Redis all counts of the domain start from zero"}},
		{"what has no rule", user, "unmatched: deny\n" + user, []string{"stricter : descriptors without a rule: deny; until now default"}},
		{"plans",
			rule("plans: {free: {requests: 1, period: 1s}, old: {requests: 2, period: 1s}}, plan: free"),
			rule("plans: {free: {requests: 2, period: 1s}, pro: {requests: 5, period: 1s}}, plan: pro"), []string{
				"looser user (plan free): 2 at once, then 2 a second; until now 1 at once, then one a second: 2 times as much",
				"changed user (plan pro): a new plan, 5 at once, then 5 a second",
				"changed user (plan old): the plan is gone: subjects to whom it is assigned get 5 at once, then 5 a second; until now 2 at once, then 2 a second",
				"changed user: subjects without an assigned plan get the plan pro, 5 at once, then 5 a second; until now free, 1 at once, then one a second",
			}},
		{"plans in place of a limit", user, rule("plans: {free: {requests: 1, period: 1s}}, plan: free"),
			[]string{"changed user: by plan, 1 at once, then one a second for subjects without an assigned plan; until now 10 at once, then one every 6s"}},
		{"order",
			"domain: d\ndescriptors:\n- {key: k, value: a*, rate_limit: &l {requests: 1, period: 1s}}\n- {key: k, value: '*b', rate_limit: *l}\n- {key: k, value: c*, rate_limit: *l}\n",
			"domain: d\ndescriptors:\n- {key: k, value: c*, rate_limit: &l {requests: 1, period: 1s}}\n- {key: k, value: '*b', rate_limit: *l}\n- {key: k, value: a*, rate_limit: *l}\n", []string{
				"matched k=c*: comes before *b: values that fit both have its limits, 1 at once, then one a second; until now those of the other, 1 at once, then one a second",
				"matched k=*b: comes before a*: values that fit both have its limits, 1 at once, then one a second; until now those of the other, 1 at once, then one a second",
			}},
		{"a prefix in the way of a pattern", rule("value: '10.*', rate_limit: {requests: 10, period: 1m}"), rule("value: '10.*', rate_limit: {requests: 10, period: 1m}") + "- {key: user, cidr: [10.0.0.0/8], rate_limit: {requests: 1, period: 1m}}\n",
			[]string{"matched user=10.0.0.0/8: a new rule, 1 at once, then one a minute; until now 10 at once, then one every 6s of the rule user=10.*"}},
		{"other prefixes", rule("cidr: [10.0.0.0/8, 11.0.0.0/8], rate_limit: {requests: 1, period: 1m}"), rule("cidr: [10.0.0.0/8, 12.0.0.0/8], rate_limit: {requests: 1, period: 1m}"),
			[]string{`reset user="10.0.0.0/8 and 1 more": other networks: some addresses match another rule, or are counted by another network, whose count starts from zero`}},
		{"another network", user, rule("network: {ipv6: 64}, rate_limit: {requests: 10, period: 1m}"),
			[]string{"reset user: other networks: some addresses match another rule, or are counted by another network, whose count starts from zero"}},
		{"a pattern in the way of another",
			"domain: d\ndescriptors:\n- {key: k, value: '*b', rate_limit: {requests: 1, period: 1s}}\n",
			"domain: d\ndescriptors:\n- {key: k, value: a*, rate_limit: {requests: 2, period: 1s}}\n- {key: k, value: '*b', rate_limit: {requests: 1, period: 1s}}\n",
			[]string{"stricter k=a*: a new rule, 2 at once, then 2 a second; until now no limit; values that also fit *b had the limits of that one"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := diffTexts(t, c.before, c.after); !slices.Equal(got, c.want) {
				t.Errorf("the differences are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDiffOfDomains(t *testing.T) {
	t.Parallel()
	old, err := limitstest.Load(t, "domain: a\ndescriptors: [{key: k, rate_limit: {requests: 1, period: 1s}}]")
	if err != nil {
		t.Fatal(err)
	}
	now, err := limitstest.Load(t, "domain: b")
	if err != nil {
		t.Fatal(err)
	}
	want := []diff.Difference{
		{Domain: "a", Effect: diff.Looser, Text: "the domain is gone with its 1 rule; its requests have no limit any more"},
		{Domain: "b", Effect: diff.Stricter, Text: "a new domain with 0 rules; until now its requests had no limit"},
	}
	if got := diff.Between(old, now); !slices.Equal(got, want) {
		t.Errorf("the differences are %v, want %v", got, want)
	}
}

// Where rules without a difference are in force, every request has the limits that
// it had.
func TestNoDifferenceIsOverlooked(t *testing.T) {
	t.Parallel()
	same, different := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		level, ids := limitstest.RandomLevel(r, 2, 12), make(map[*limitstest.Branch]int64)
		write := func() *rules.Set {
			var s strings.Builder
			s.WriteString("domain: d\ndescriptors: ")
			limitstest.WriteLevel(&s, level, ids)
			rules, err := limitstest.Load(t, s.String())
			if err != nil {
				t.Fatal(err)
			}
			return rules
		}
		before := write()
		switch n := len(level); {
		case n < 2:
		case r.IntN(2) == 0:
			i, j := r.IntN(n), r.IntN(n)
			level[i], level[j] = level[j], level[i]
		default:
			level = slices.Delete(level, 0, 1)
		}
		// The numbers of the rules stay as they were.
		numbered := make(map[*limitstest.Branch]int64)
		for rule, id := range ids {
			numbered[rule] = id
		}
		after := rewrite(t, level, numbered)
		isDifferent := len(diff.Between(before, after)) > 0
		if isDifferent {
			different++
		} else {
			same++
		}
		for range 300 {
			es := make([]bucket.Entry, 1+r.IntN(2))
			for i := range es {
				es[i] = bucket.Entry{Key: "k" + limitstest.RandomText(r, "ab_", 1), Value: limitstest.RandomText(r, "ab*_", 6)}
			}
			old, now := before.Domain("d").Match(es), after.Domain("d").Match(es)
			if requestsOf(old) != requestsOf(now) && !isDifferent {
				t.Fatalf("seed %d: %v had %d requests and has %d, and no difference is reported", seed, es, requestsOf(old), requestsOf(now))
			}
		}
	}
	if same < 20 || different < 20 {
		t.Errorf("%d pairs are the same and %d different: the test is too weak", same, different)
	}
}

func requestsOf(r *rules.Rule) int64 {
	if r == nil {
		return -1
	}
	return r.Limits[0].Requests
}

// rewrite writes a level with the numbers that its rules have already.
func rewrite(t *testing.T, level []*limitstest.Branch, ids map[*limitstest.Branch]int64) *rules.Set {
	t.Helper()
	var s strings.Builder
	var write func(level []*limitstest.Branch)
	write = func(level []*limitstest.Branch) {
		s.WriteString("[")
		for _, rule := range level {
			fmt.Fprintf(&s, "{key: %q, value: %q", rule.Key, rule.Value)
			if rule.Limited {
				fmt.Fprintf(&s, ", rate_limit: {requests: %d, period: 1s}", ids[rule])
			}
			if rule.Below != nil {
				s.WriteString(", descriptors: ")
				write(rule.Below)
			}
			s.WriteString("}, ")
		}
		s.WriteString("]")
	}
	s.WriteString("domain: d\ndescriptors: ")
	write(level)
	rules, err := limitstest.Load(t, s.String())
	if err != nil {
		t.Fatal(err)
	}
	return rules
}
