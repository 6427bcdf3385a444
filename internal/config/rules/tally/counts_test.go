package tally_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

func TestValuesOfARuleAreBounded(t *testing.T) {
	t.Parallel()
	rule := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}\n  value_to_metric: true")).Match(limitstest.Entries("k=v"))
	count := func(value string) { rule.Count(tally.Denied, []bucket.Entry{{Key: "k", Value: value}}) }
	count(strings.Repeat("x", tally.MaxValueBytes))
	count(strings.Repeat("x", tally.MaxValueBytes+1))
	count("\xff")
	for range 2 {
		for i := range 1500 {
			count(fmt.Sprint(i))
		}
	}
	count("")
	if n := rule.Counts.Of(tally.Denied); n != 1 {
		t.Errorf("%d without a value", n)
	}
	sum := uint64(0)
	values := rule.Counts.Values()
	for _, v := range values {
		n := v.Of(tally.Denied)
		sum += n
		if v.Value != tally.RestOfValues && n != 2 && len(v.Value) != tally.MaxValueBytes {
			t.Errorf("%.10q: %d", v.Value, n)
		}
	}
	if len(values) != tally.MaxRuleValues+1 || sum != 3003 {
		t.Errorf("%d values with %d descriptors", len(values), sum)
	}
}

func TestCountDoesNotAllocate(t *testing.T) {
	for _, flag := range []string{"shadow_mode", "detailed_metric", "value_to_metric"} {
		t.Run(flag, func(t *testing.T) {
			rule := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}\n  "+flag+": true")).Match(limitstest.Entries("k=v"))
			es := limitstest.Entries("k=v")
			rule.Count(tally.Allowed, es)
			if n := testing.AllocsPerRun(100, func() { rule.Count(tally.Allowed, es) }); n != 0 {
				t.Errorf("%s: %v allocations", flag, n)
			}
		})
	}
}

// Also a request that replaces limits of the rule, so that others stand where these do.
func TestCountsOfALimitAreFoundWithoutAllocation(t *testing.T) {
	counts := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}")).Match(limitstest.Entries("k=v")).Counts
	counts.Limit("first", 0)
	counts.Limit("second", 1)
	for near := range 3 {
		if n := testing.AllocsPerRun(100, func() { counts.Limit("second", near).Add(tally.LimitAllowed, 1) }); n != 0 {
			t.Errorf("looked for at %d: %v allocations", near, n)
		}
	}
	if n := counts.Limits()[1].Cost(tally.LimitAllowed); n != 303 { // with a first call of each run
		t.Errorf("%d is counted", n)
	}
}

// Many callers count old and new values at a time.
func TestNoResultOfManyCallersIsLost(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 2000
	rule := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}\n  value_to_metric: true")).Match(limitstest.Entries("k=v"))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				rule.Count(tally.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint(i)}})
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	values := rule.Counts.Values()
	for _, v := range values {
		sum += v.Of(tally.Allowed)
	}
	if sum != callers*each || len(values) != tally.MaxRuleValues+1 {
		t.Errorf("%d of %d in %d values", sum, callers*each, len(values))
	}
}

// There is as much room for values before and after rules go and come.
func TestValuesOfAllRulesAreBounded(t *testing.T) {
	t.Parallel()
	const rules = tally.MaxCountedValues/tally.MaxRuleValues + 2
	text := func(from, to int) string {
		return "domain: d\ndescriptors: [" + limitstest.Many("{key: k%d, value_to_metric: true, rate_limit: {unit: day}}", from, to) + "]\n"
	}
	dir := t.TempDir()
	l := limitsfile.NewLive(dir, nil)
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
			for i := range tally.MaxRuleValues {
				r.Count(tally.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint(i)}})
			}
			sum := uint64(0)
			for _, v := range r.Counts.Values() {
				sum += v.Of(tally.Allowed)
				if v.Value != tally.RestOfValues {
					values++
				} else {
					others = append(others, r.Path())
				}
			}
			if sum%tally.MaxRuleValues != 0 {
				t.Errorf("%s: %d descriptors", r.Path(), sum)
			}
		}
		return values, others
	}
	want := func(when string, rules ...string) {
		t.Helper()
		if values, others := fill(); values != tally.MaxCountedValues || !slices.Equal(others, rules) {
			t.Errorf("%s: %d values by themselves, others of %v, want %v", when, values, others, rules)
		}
	}
	reload(text(1, rules))
	want("at first", "k11", "k12")
	before := l.Rules().Domain("d").Rules()[0]
	reload(text(2, rules))
	want("a rule has gone", "k11", "k12")
	// A request that began with it takes no room.
	for i := range 2 * tally.MaxRuleValues {
		before.Count(tally.Allowed, []bucket.Entry{{Key: "k", Value: fmt.Sprint("late", i)}})
	}
	reload(text(4, rules+2))
	want("two have gone, two have come", "k11", "k12", "k14")
}
