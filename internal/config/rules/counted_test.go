package rules_test

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

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
			rule := limitstest.Domain(t, "domain: d\ndescriptors:\n- key: k\n  value: v\n  descriptors:\n  - {key: l, value: w*, "+c.flag+": true, rate_limit: {unit: day}}\n").Match(limitstest.Entries("k=v,l=w"))
			if got := rule.Count(tally.Allowed, limitstest.Entries(c.asked)); got == nil || got.Of(tally.Allowed) != 1 {
				t.Fatalf("counted in %+v", got)
			}
			var got []bucket.Entry
			if values := rule.Counts.Values(); len(values) == 1 {
				got = rule.AppendEntriesOf(nil, values[0].Value)
			} else {
				got = rule.Entries()
			}
			if !slices.Equal(got, limitstest.Entries(c.want)) {
				t.Errorf("got %v, want %v", got, limitstest.Entries(c.want))
			}
		})
	}
	rule := limitstest.Domain(t, "domain: d\ndescriptors: [{key: k, descriptors: [{key: l, detailed_metric: true, rate_limit: {unit: day}}]}]\n").Match(limitstest.Entries("k=1,l=2"))
	for value, want := range map[string]string{tally.RestOfValues: "k=\xff,l=\xff", "other": "k=,l=other", "k=/l=": "k=,l=", "k=1/l=2/l=3": "k=1,l=2/l=3", "of other flags": "k=,l=of other flags"} {
		if got := rule.AppendEntriesOf(nil, value); !slices.Equal(got, limitstest.Entries(want)) {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
