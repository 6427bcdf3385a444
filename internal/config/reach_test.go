package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

const reached = `domain: d
descriptors:
- key: plan
  value: free
  descriptors:
  - key: tenant
    rate_limit: {requests: 1, period: 1s}
- key: user
  rate_limit: {requests: 1, period: 1s}
- key: user
  value: alice
  rate_limit: {requests: 2, period: 1s}
- key: account
  value: gold
  descriptors:
  - key: route
    value: /search
    rate_limit: {requests: 1, period: 1s}
- key: nothing
  descriptors:
  - key: more
`

// What people want to name, and how they get it wrong.
func TestReachTellsSubjectsThatNoRuleIsFor(t *testing.T) {
	t.Parallel()
	r, err := load(t, reached)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, subject string
		exactly, any  bool   // whether a rule is for these very entries, and for what begins with them
		hint          string // of both, unless it is for what begins so
	}{
		{"the subject of a rule", "user=bob", true, true, ""},
		{"the beginning of rules", "plan=free", false, true, `plan=free is only the beginning of a rule, and has no limit itself (limits.yaml:3): the rule goes on with the key tenant`},
		{"the beginning of a rule with exact values", "account=gold", false, true, "account=gold is only the beginning of a rule"},
		{"a misspelt key", "uesr=bob", false, false, "no descriptor here has the key uesr; user (limits.yaml:8) differs from it by one letter"},
		{"a misspelt exact value", "account=gold,route=/serch", false, false, `route=/serch matches nothing: did you mean route="/search" (limits.yaml:16), which differs by one letter?`},
		{"an exact value in other letters, which the bare key matches", "user=Alice", true, true, `user=Alice matches user (limits.yaml:8) and not user="alice" (limits.yaml:10), from which it differs in case alone`},
		{"another order", "tenant=acme,plan=free", false, false, "the entries match in another order, as plan=free,tenant=acme (limits.yaml:6): their order has to be that of the rule"},
		{"the beginning of another order", "route=/search,account=gold", false, false, "the entries match in another order, as account=gold,route=/search"},
		{"a key that stands further in", "tenant=acme", false, false, "no descriptor here has the key tenant, but one below plan=free has (limits.yaml:3): the descriptor would have to name that before it"},
		{"more entries than a rule", "user=bob,route=/x", false, false, "user=bob has a limit (limits.yaml:8), but the descriptor goes on with route=/x"},
		{"something else altogether", "zone=7", false, false, "rules of the domain begin with plan=free (limits.yaml:3), user (limits.yaml:8), account=gold (limits.yaml:13) and 2 more"},
		{"something else further in", "account=gold,zone=7", false, false, "rules that begin with account=gold go on with route=/search (limits.yaml:16)"},
		{"a descriptor without a limit", "nothing=x,more=y", false, false, "nothing=x,more=y leads to more (limits.yaml:21), where no limit is"},
		{"an empty value", "user=", true, true, "the value of user is empty, as where a header is missing, so all who send none share a limit"},
	} {
		reacher := r.Reacher()
		for kind, c := range map[string]struct {
			reach config.Reach
			want  bool
		}{
			"exactly":   {reacher.Exactly("d", entries(tc.subject)), tc.exactly},
			"beginning": {reacher.Beginning("d", entries(tc.subject)), tc.any},
		} {
			if c.reach.HasRule != c.want {
				t.Errorf("%s, %s: %s has a rule: %t, want %t", tc.name, kind, tc.subject, c.reach.HasRule, c.want)
			}
			wanted := tc.hint
			if tc.any && !tc.exactly && kind == "beginning" {
				wanted = ""
			}
			named := slices.ContainsFunc(c.reach.Hints, func(h string) bool { return strings.Contains(shortPaths(h), wanted) })
			if wanted == "" && len(c.reach.Hints) > 0 || wanted != "" && !named {
				t.Errorf("%s, %s: of %s the hints are %q, want %q", tc.name, kind, tc.subject, c.reach.Hints, wanted)
			}
		}
	}
	if found := r.Reacher().Beginning("e", entries("user=bob")); found.HasRule || len(found.Hints) != 1 || !strings.HasPrefix(found.Hints[0], `no limits have the domain "e"`) {
		t.Errorf("of an unknown domain: %+v", found)
	}
}

// A hint's subject can be pasted into a command, and one that is cut is told as that.
func TestShownEntriesCanBePasted(t *testing.T) {
	for want, shown := range map[string][]bucket.Entry{
		"plan=free,tenant=acme":                   {{Key: "plan", Value: "free"}, {Key: "tenant", Value: "acme"}},
		"user=":                                   {{Key: "user"}},
		`'user=it'\''s $HOME'`:                    {{Key: "user", Value: "it's $HOME"}},
		`'path=/a\,b,k\=\u{202e}=x y'`:            {{Key: "path", Value: "/a,b"}, {Key: "k=\u202e", Value: "x y"}},
		"user=" + strings.Repeat("u", 80) + "...": {{Key: "user", Value: strings.Repeat("u", 81)}},
		strings.Repeat("k=v,", 6) + "...":         slices.Repeat([]bucket.Entry{{Key: "k", Value: "v"}}, 7),
	} {
		if got := config.ShowEntries(shown); got != want {
			t.Errorf("%q is shown as %s, want %s", shown, got, want)
		}
	}
}

// shortPaths leaves only the last part of each file's path.
func shortPaths(text string) string {
	words := strings.SplitAfter(text, "(")
	for i, w := range words {
		if at := strings.Index(w, "limits.yaml"); at >= 0 {
			words[i] = w[at:]
		}
	}
	return strings.Join(words, "")
}

// A rule is found, or not, however many were asked about before, and the work stays
// bounded: beyond it there are no hints.
func TestReachOfManySubjectsIsBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n- key: user\n  rate_limit: {requests: 1, period: 1s}\n")
	for i := range 100_000 {
		fmt.Fprintf(&text, "- {key: tenant, value: t%d, rate_limit: {requests: 1, period: 1s}}\n", i)
	}
	r, err := load(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	reacher := r.Reacher()
	hints := 0
	for i := range 1000 {
		if found := reacher.Beginning("d", entries(fmt.Sprintf("tenant=x%d", i))); found.HasRule {
			t.Fatalf("of tenant=x%d: %+v", i, found)
		} else if len(found.Hints) > 0 {
			hints++
		}
		if found := reacher.Beginning("d", entries(fmt.Sprintf("tenant=t%d", i))); !found.HasRule {
			t.Fatalf("of tenant=t%d: %+v", i, found)
		}
	}
	if hints == 0 || hints > 10 {
		t.Errorf("%d of 1,000 subjects have hints; every one that has looked at 100,000 descriptors", hints)
	}
}
