package config_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// countsOf returns the counts of the rules of domain d, by path.
func countsOf(t *testing.T, l *config.Live) map[string]*config.RuleCounts {
	t.Helper()
	found := make(map[string]*config.RuleCounts)
	for _, r := range l.Rules().Domain("d").Rules() {
		if r.Counts == nil || found[r.Path()] != nil {
			t.Fatalf("%s: no counts, or a second rule of this path", r.Path())
		}
		found[r.Path()] = r.Counts
	}
	return found
}

// Two texts are loaded one after the other. The rules named keep their counts,
// and no others do.
func TestRulesKeepTheirCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, before, after string
		stay                []string
	}{
		{
			"new numbers, in another order",
			"domain: d\ndescriptors:\n- {key: a, value: x, rate_limit: {requests: 1, period: 1s}}\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true}}\n- {key: a, value: x, rate_limit: {requests: 2, period: 1s, algorithm: gcra}}\n",
			[]string{"a", "a=x"},
		},
		{
			"a rule goes, another comes",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: c, rate_limit: {requests: 1, period: 1s}}\n",
			[]string{"a"},
		},
		{
			"a rule moves to another level",
			"domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			"domain: d\ndescriptors:\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n",
			nil,
		},
		{
			"a rule below one that says nothing, and then something",
			"domain: d\ndescriptors:\n- {key: a, value: x, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			"domain: d\ndescriptors:\n- {key: a, value: x, rate_limit: {requests: 1, period: 1s}, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			[]string{"a=x / b"},
		},
		{
			"among many patterns",
			"domain: d\ndescriptors: [" + many("{key: path, value: '/s%d/*', rate_limit: {requests: 1, period: 1s}}", 1, 19) + "]\n",
			"domain: d\ndescriptors: [" + many("{key: path, value: '/s%d/*', rate_limit: {requests: 1, period: 1s}}", 17, 40) + "]\n",
			[]string{"path=/s17/*", "path=/s18/*", "path=/s19/*"},
		},
		{
			"among many keys",
			"domain: d\ndescriptors: [" + many("{key: k%d, rate_limit: {requests: 1, period: 1s}}", 1, 9) + "]\n",
			"domain: d\ndescriptors: [" + many("{key: k%d, rate_limit: {requests: 1, period: 1s}}", 8, 12) + "]\n",
			[]string{"k8", "k9"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := config.NewLive(dir, nil)
			loaded := func(text string) map[string]*config.RuleCounts {
				filetest.Write(t, dir, "a.yaml", text)
				if err := l.Reload(); err != nil {
					t.Fatal(err)
				}
				return countsOf(t, l)
			}
			before := loaded(c.before)
			var stayed []string
			for path, counts := range loaded(c.after) {
				if before[path] == counts {
					stayed = append(stayed, path)
				}
			}
			slices.Sort(stayed)
			if !slices.Equal(stayed, c.stay) {
				t.Errorf("stayed: %q, want %q", stayed, c.stay)
			}
		})
	}
}

// many returns the items from one number to another.
func many(item string, from, to int) string {
	var items []string
	for i := from; i <= to; i++ {
		items = append(items, fmt.Sprintf(item, i))
	}
	return strings.Join(items, ", ")
}

func TestValuesOfARuleAreBounded(t *testing.T) {
	t.Parallel()
	rule := mustLoad(t, descriptor("rate_limit: {unit: day}\n  value_to_metric: true")).Match(entries("k=v"))
	count := func(value string) { rule.Count(config.Denied, []bucket.Entry{{Key: "k", Value: value}}) }
	count(strings.Repeat("x", config.MaxValueBytes))
	count(strings.Repeat("x", config.MaxValueBytes+1))
	count("\xff")
	for range 2 {
		for i := range 1500 {
			count(fmt.Sprint(i))
		}
	}
	count("")
	if n := rule.Counts.Denied.Load(); n != 1 {
		t.Errorf("%d without a value", n)
	}
	sum := uint64(0)
	values := rule.Counts.Values()
	for _, v := range values {
		n := v.Of(config.Denied)
		sum += n
		if v.Value != config.RestOfValues && n != 2 && len(v.Value) != config.MaxValueBytes {
			t.Errorf("%.10q: %d", v.Value, n)
		}
	}
	if len(values) != config.MaxRuleValues+1 || sum != 3003 {
		t.Errorf("%d values with %d descriptors", len(values), sum)
	}
}

func TestEachResultIsCounted(t *testing.T) {
	rule := mustLoad(t, descriptor("rate_limit: {unit: day}\n  detailed_metric: true")).Match(entries("k=v"))
	for i, r := range []config.Result{config.Allowed, config.Denied, config.Shadowed} {
		for range i + 1 {
			rule.Count(r, entries("k=v,l=w"))
		}
	}
	values := rule.Counts.Values()
	if len(values) != 1 || values[0].Value != "k=v/l=w" {
		t.Fatalf("values: %+v", values)
	}
	for i, r := range []config.Result{config.Allowed, config.Denied, config.Shadowed} {
		if n := values[0].Of(r); n != uint64(i+1) {
			t.Errorf("%s: %d", r, n)
		}
	}
}

func TestCountDoesNotAllocate(t *testing.T) {
	for _, flag := range []string{"shadow_mode", "detailed_metric", "value_to_metric"} {
		t.Run(flag, func(t *testing.T) {
			rule := mustLoad(t, descriptor("rate_limit: {unit: day}\n  "+flag+": true")).Match(entries("k=v"))
			es := entries("k=v")
			rule.Count(config.Allowed, es)
			if n := testing.AllocsPerRun(100, func() { rule.Count(config.Allowed, es) }); n != 0 {
				t.Errorf("%s: %v allocations", flag, n)
			}
		})
	}
}

// Also a request that replaces limits of the rule, so that others stand where these do.
func TestCountsOfALimitAreFoundWithoutAllocation(t *testing.T) {
	counts := mustLoad(t, descriptor("rate_limit: {unit: day}")).Match(entries("k=v")).Counts
	counts.Limit("first", 0)
	counts.Limit("second", 1)
	for near := range 3 {
		if n := testing.AllocsPerRun(100, func() { counts.Limit("second", near).Add(config.LimitAllowed, 1) }); n != 0 {
			t.Errorf("looked for at %d: %v allocations", near, n)
		}
	}
	if n := counts.Limits()[1].Cost[config.LimitAllowed].Load(); n != 303 { // with a first call of each run
		t.Errorf("%d is counted", n)
	}
}

// Many callers count old and new values at a time.
func TestNoResultOfManyCallersIsLost(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 2000
	rule := mustLoad(t, descriptor("rate_limit: {unit: day}\n  value_to_metric: true")).Match(entries("k=v"))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				rule.Count(config.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint(i)}})
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	values := rule.Counts.Values()
	for _, v := range values {
		sum += v.Of(config.Allowed)
	}
	if sum != callers*each || len(values) != config.MaxRuleValues+1 {
		t.Errorf("%d of %d in %d values", sum, callers*each, len(values))
	}
}

// There is as much room for values before and after rules go and come.
func TestValuesOfAllRulesAreBounded(t *testing.T) {
	t.Parallel()
	const rules = config.MaxCountedValues/config.MaxRuleValues + 2
	text := func(from, to int) string {
		return "domain: d\ndescriptors: [" + many("{key: k%d, value_to_metric: true, rate_limit: {unit: day}}", from, to) + "]\n"
	}
	dir := t.TempDir()
	l := config.NewLive(dir, nil)
	reload := func(text string) {
		t.Helper()
		filetest.Write(t, dir, "a.yaml", text)
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	// fill counts as many values of each rule as it may have. It returns how many
	// of all are counted by themselves, and the rules that have others too.
	fill := func() (values int, others []string) {
		for _, r := range l.Rules().Domain("d").Rules() {
			for i := range config.MaxRuleValues {
				r.Count(config.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint(i)}})
			}
			sum := uint64(0)
			for _, v := range r.Counts.Values() {
				sum += v.Of(config.Allowed)
				if v.Value != config.RestOfValues {
					values++
				} else {
					others = append(others, r.Path())
				}
			}
			if sum%config.MaxRuleValues != 0 {
				t.Errorf("%s: %d descriptors", r.Path(), sum)
			}
		}
		return values, others
	}
	want := func(when string, rules ...string) {
		t.Helper()
		if values, others := fill(); values != config.MaxCountedValues || !slices.Equal(others, rules) {
			t.Errorf("%s: %d values by themselves, others of %v, want %v", when, values, others, rules)
		}
	}
	reload(text(1, rules))
	want("at first", "k51", "k52")
	before := l.Rules().Domain("d").Rules()[0]
	reload(text(2, rules))
	want("a rule has gone", "k51", "k52")
	// A request that began with it takes no room.
	for i := range 2 * config.MaxRuleValues {
		before.Count(config.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint("late", i)}})
	}
	reload(text(4, rules+2))
	want("two have gone, two have come", "k51", "k52", "k54")
}
