package config_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

func TestHitsOfManyCallersAddUp(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 1000
	var c config.Counts
	if c.Hits() != (config.Hits{}) {
		t.Errorf("at first: %+v", c.Hits())
	}
	one := config.Hits{Within: 1, Over: 2, Fit: 3, Near: 4, Shadowed: 5}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				c.AddHits(one)
			}
		})
	}
	all.Wait()
	const n = callers * each
	if want := (config.Hits{Within: n, Over: 2 * n, Fit: 3 * n, Near: 4 * n, Shadowed: 5 * n}); c.Hits() != want || want.Total() != 6*n {
		t.Errorf("got %+v, want %+v, %d in all", c.Hits(), want, want.Total())
	}
	if sum := one.Plus(one); sum != (config.Hits{Within: 2, Over: 4, Fit: 6, Near: 8, Shadowed: 10}) {
		t.Errorf("twice %+v is %+v", one, sum)
	}
}

func TestHitsAreAddedWithoutAllocation(t *testing.T) {
	var c config.Counts
	c.AddHits(config.Hits{Within: 1})
	if n := testing.AllocsPerRun(100, func() { c.AddHits(config.Hits{Within: 1, Near: 1}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHitsStayOverAReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := config.NewLive(dir, nil)
	reload := func(text string) {
		t.Helper()
		filetest.Write(t, dir, "a.yaml", text)
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload("domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n")
	for path, c := range countsOf(t, l) {
		c.AddHits(config.Hits{Within: uint64(len(path))})
	}
	reload("domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 2, period: 1m}}\n- {key: c, rate_limit: {requests: 1, period: 1s}}\n")
	counts := countsOf(t, l)
	if a, c := counts["a"].Hits(), counts["c"].Hits(); a.Within != 1 || c.Total() != 0 {
		t.Errorf("the rule that stays has %+v, the new one %+v", a, c)
	}
}

func TestCountedValuesTellTheirEntries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, flag, asked, want string
	}{
		{"no values", "shadow_mode", "k=v,l=w", "k=v,l=w*"},
		{"the value of the last", "value_to_metric", "k=v,l=w1", "k=v,l=w1"},
		{"all values", "detailed_metric", "k=v,l=w/x=y", "k=v,l=w/x=y"},
		{"all values, read in the first of two ways", "detailed_metric", "k=v,l=w/l=1", "k=v,l=w/l=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := mustLoad(t, "domain: d\ndescriptors:\n- key: k\n  value: v\n  descriptors:\n  - {key: l, value: w*, "+c.flag+": true, rate_limit: {unit: day}}\n").Match(entries("k=v,l=w"))
			if got := rule.Count(config.Allowed, entries(c.asked)); got == nil || got.Of(config.Allowed) != 1 {
				t.Fatalf("counted in %+v", got)
			}
			var got []bucket.Entry
			if values := rule.Counts.Values(); len(values) == 1 {
				got = rule.AppendEntriesOf(nil, values[0].Value)
			} else {
				got = rule.Entries()
			}
			if !slices.Equal(got, entries(c.want)) {
				t.Errorf("got %v, want %v", got, entries(c.want))
			}
		})
	}
	rule := mustLoad(t, "domain: d\ndescriptors: [{key: k, descriptors: [{key: l, detailed_metric: true, rate_limit: {unit: day}}]}]\n").Match(entries("k=1,l=2"))
	for value, want := range map[string]string{config.RestOfValues: "k=\xff,l=\xff", "other": "k=,l=other", "k=/l=": "k=,l=", "k=1/l=2/l=3": "k=1,l=2/l=3", "of other flags": "k=,l=of other flags"} {
		if got := rule.AppendEntriesOf(nil, value); !slices.Equal(got, entries(want)) {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
