package limitsfile_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// flagsOf returns the flags of a rule.
func flagsOf(r *rules.Rule) string {
	var flags []string
	for name, set := range map[string]bool{"shadow_mode": r.ShadowMode, "quota_mode": r.QuotaMode, "detailed_metric": r.DetailedMetric, "metadata": r.Metadata != nil} {
		if set {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	return fmt.Sprintf("%v share %q count %v", flags, r.Shared, r.CountedEntries)
}

func TestEachFlagIsReadBesideOneLimitOrSeveral(t *testing.T) {
	for _, limits := range []string{"rate_limit: {unit: day}", "rate_limits: [{name: a, requests: 1, period: 1s}, {name: b, unit: day}]"} {
		for flag, want := range map[string]string{
			"":                      "[] share [] count []",
			"shadow_mode: true":     "[shadow_mode] share [] count []",
			"quota_mode: yes":       "[quota_mode] share [] count []",
			"detailed_metric: true": "[detailed_metric] share [] count []",
			"value_to_metric: on":   "[] share [] count [0]",
			"share_threshold: true": `[] share ["a*"] count []`,
			"shadow_mode: false":    "[] share [] count []",
		} {
			t.Run(flag+" beside "+limits, func(t *testing.T) {
				d := limitstest.Domain(t, "domain: d\ndescriptors:\n- key: k\n  value: 'a*'\n  "+limits+"\n  "+flag+"\n")
				if got := flagsOf(d.Match(limitstest.Entries("k=ab"))); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

func TestFlagsActOnTheirOwnRuleOrOnAllBelow(t *testing.T) {
	d := limitstest.Domain(t, `domain: d
descriptors:
- key: a
  value: "x*"
  rate_limit: {unit: day}
  shadow_mode: true
  metadata: {from: a}
  share_threshold: true
  value_to_metric: true
  descriptors:
  - key: b
    descriptors:
    - key: c
      value: "*"
      rate_limit: {unit: day}
      share_threshold: true
      value_to_metric: true
    - {key: d, rate_limit: {unit: day}}
`)
	for entries, want := range map[string]string{
		"a=x":         `[metadata shadow_mode] share ["x*"] count [0]`,
		"a=x,b=1,c=2": `[] share ["x*" "" "*"] count [0 2]`,
		"a=x,b=1,d=2": `[] share ["x*" "" ""] count [0]`,
	} {
		if got := flagsOf(d.Match(limitstest.Entries(entries))); got != want {
			t.Errorf("%s: got %s, want %s", entries, got, want)
		}
	}
}

func TestReplacesIsReadForEachLimit(t *testing.T) {
	d := limitstest.Domain(t, `domain: d
descriptors:
- key: a
  rate_limits:
  - {name: x, unit: day}
  - {name: y, unit: day, replaces: [{name: free}, {name: x}]}
  - {name: z, unit: day}
- {key: b, rate_limit: {name: free, requests: 1, period: 1s}}
- {key: c, rate_limit: {unlimited: true, name: vip, replaces: [{name: free}]}}
- {key: e, rate_limit: {requests: 1, period: 1s, replaces: [{name: y}]}}
`)
	for es, want := range map[string][][]string{
		"a=1": {nil, {"free", "x"}, nil},
		"b=1": nil,
		"c=1": {{"free"}},
		"e=1": {{"y"}},
	} {
		t.Run(es, func(t *testing.T) {
			if got := d.Match(limitstest.Entries(es)).Replaces; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %q, want %q", es, got, want)
			}
		})
	}
}

func TestReplacesOfNoLimitIsAWarning(t *testing.T) {
	got := warningsOf(t, `domain: d
descriptors:
- {key: a, rate_limit: {name: x, unit: day, replaces: [{name: y}, {name: z}, {name: deep}]}}
- {key: b, rate_limit: {name: y, unlimited: true, replaces: [{name: x}]}}
- {key: c, descriptors: [{key: e, rate_limits: [{name: deep, unit: day}]}]}
`)
	want := []string{
		`3:63: descriptors[0].rate_limit.replaces[0].name: replaces nothing: "y" is unlimited, and only limits are replaced`,
		`3:74: descriptors[0].rate_limit.replaces[1].name: replaces nothing: no limit of this domain has the name "z"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

func TestFlagsBesideUnlimitedAreWarnings(t *testing.T) {
	got := warningsOf(t, "domain: d\ndescriptors:\n- {key: a, value: 'x*', shadow_mode: true, share_threshold: true, metadata: {a: b}, rate_limit: {unlimited: true}}\n")
	want := []string{
		"3:25: descriptors[0].shadow_mode: has no effect beside unlimited",
		"3:44: descriptors[0].share_threshold: has no effect beside unlimited",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

func TestMetadataKeepsTheTypesOfYAML(t *testing.T) {
	d := limitstest.Domain(t, `domain: d
descriptors:
- key: k
  rate_limit: {unit: day}
  metadata:
    text: yes and no
    "5": quoted
    whole: 0x10
    large: 99999999999999999999
    part: -0.5
    yes: true
    none:
    day: 2026-01-02
    list: [1, [], {a: ~}]
    merged: {b: 1}
`)
	want := map[string]any{
		"text": "yes and no", "5": "quoted", "whole": int64(16), "large": 1e20, "part": -0.5, "yes": true, "none": nil,
		"day": "2026-01-02", "list": []any{int64(1), []any{}, map[string]any{"a": nil}}, "merged": map[string]any{"b": int64(1)},
	}
	if got := d.Match(limitstest.Entries("k=v")).Metadata; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	for _, empty := range []string{"{}", "", "~"} {
		t.Run("empty: "+empty, func(t *testing.T) {
			d := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}\n  metadata: "+empty))
			if got := d.Match(limitstest.Entries("k=v")).Metadata; got != nil {
				t.Errorf("%s: %#v", empty, got)
			}
		})
	}
}

func TestStarsStandAnywhereInAPattern(t *testing.T) {
	for _, c := range []struct {
		pattern       string
		match, others []string
	}{
		{"*", []string{"", "a", "**"}, nil},
		{"**", []string{"", "a"}, nil},
		{"a*", []string{"a", "ab", "a*"}, []string{"", "ba"}},
		{"*a", []string{"a", "ba", "aa"}, []string{"", "ab"}},
		{"a*b", []string{"ab", "axb", "abab"}, []string{"a", "b", "", "aba"}},
		{"*a*", []string{"a", "xax"}, []string{"", "x"}},
		{"a**b*c", []string{"abc", "axbxc", "abbc"}, []string{"ac", "abcx"}},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			d := limitstest.Domain(t, "domain: d\ndescriptors:\n- {key: k, value: '"+c.pattern+"', rate_limit: {unit: day}}\n")
			for _, value := range c.match {
				if d.Match(limitstest.Entries("k="+value)) == nil {
					t.Errorf("%s does not match %q", c.pattern, value)
				}
			}
			for _, value := range c.others {
				if d.Match(limitstest.Entries("k="+value)) != nil {
					t.Errorf("%s matches %q", c.pattern, value)
				}
			}
		})
	}
}
