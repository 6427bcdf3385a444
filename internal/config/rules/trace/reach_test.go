package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
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
	r, err := limitstest.Load(t, reached)
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
		{"a misspelt exact value", "account=gold,route=/serch", false, false, `route=/serch matches nothing: did you mean route=/search (limits.yaml:16), which differs by one letter?`},
		{"an exact value in other letters, which the bare key matches", "user=Alice", true, true, `user=Alice matches user (limits.yaml:8) and not user=alice (limits.yaml:10), from which it differs in case alone`},
		{"another order", "tenant=acme,plan=free", false, false, "the entries match in another order, as plan=free,tenant=acme (limits.yaml:6): their order has to be that of the rule"},
		{"the beginning of another order", "route=/search,account=gold", false, false, "the entries match in another order, as account=gold,route=/search"},
		{"a key that stands further in", "tenant=acme", false, false, "no descriptor here has the key tenant, but one below plan=free has (limits.yaml:3): the descriptor would have to name that before it"},
		{"more entries than a rule", "user=bob,route=/x", false, false, "user=bob has a limit (limits.yaml:8), but the descriptor goes on with route=/x"},
		{"something else altogether", "zone=7", false, false, "rules of the domain begin with plan=free (limits.yaml:3), user (limits.yaml:8), account=gold (limits.yaml:13) and 2 more"},
		{"something else further in", "account=gold,zone=7", false, false, "rules that begin with account=gold go on with route=/search (limits.yaml:16)"},
		{"a descriptor without a limit", "nothing=x,more=y", false, false, "nothing=x,more=y leads to more (limits.yaml:21), where no limit is"},
		{"an empty value", "user=", true, true, "the value of user is empty, as where a header is missing, so all who send none share a limit"},
	} {
		reacher := trace.NewReacher(r, 1)
		for kind, c := range map[string]struct {
			reach trace.Reach
			want  bool
		}{
			"exactly":   {reacher.Exactly("d", limitstest.Entries(tc.subject)), tc.exactly},
			"beginning": {reacher.Beginning("d", limitstest.Entries(tc.subject)), tc.any},
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
	if found := trace.NewReacher(r, 1).Beginning("e", limitstest.Entries("user=bob")); found.HasRule || len(found.Hints) != 1 || !strings.HasPrefix(found.Hints[0], `no limits have the domain "e"`) {
		t.Errorf("of an unknown domain: %+v", found)
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

// The share of a subject does not depend on the others: many that need much do not leave
// less to those that come after them.
func TestReachOfASubjectIsTheSameAmongAnyOthers(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 400 {
		fmt.Fprintf(&text, "- {key: key%c%c, value: v%d, rate_limit: {requests: 1, period: 1s}}\n", 'a'+i/20, 'a'+i%20, i)
	}
	r, err := limitstest.Load(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	const subjects = 1000
	reacher := trace.NewReacher(r, subjects)
	for i := range subjects {
		found := reacher.Exactly("d", limitstest.Entries(fmt.Sprintf("keyaa=V0,other%d=,keyxx=1", i)))
		if alone := trace.NewReacher(r, subjects).Exactly("d", limitstest.Entries(fmt.Sprintf("keyaa=V0,other%d=,keyxx=1", i))); !slices.Equal(found.Hints, alone.Hints) || len(alone.Hints) == 0 {
			t.Fatalf("of subject %d the hints are %q, and alone %q", i, found.Hints, alone.Hints)
		}
	}
	if looked, bound := reacher.Looked(), trace.MaxLooks+400; looked > bound {
		t.Errorf("%d descriptors were looked at, more than %d", looked, bound)
	}
}

// Whether a rule is found does not depend on how many subjects were asked about before,
// nor on how many descriptors without a limit there are.
func TestReachOfManySubjectsWithoutARuleIsTheSame(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n- key: a\n  descriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {key: b, value: b%d}\n", i)
	}
	r, err := limitstest.Load(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	reacher := trace.NewReacher(r, 1000)
	for i := range 1000 {
		if reacher.Beginning("d", limitstest.Entries(fmt.Sprintf("a=%d", i))).HasRule {
			t.Fatalf("subject %d has a rule, and no descriptor of the file has a limit", i)
		}
	}
}

// A rule counts only where a request reaches it: what a level chose is not reconsidered.
func TestReachKnowsRulesThatNoRequestReaches(t *testing.T) {
	t.Parallel()
	limit := ", rate_limit: {requests: 1, period: 1s}}\n"
	for _, tc := range []struct {
		name, below string
		reached     bool
		hint        string
	}{
		{"behind a pattern that matches all", "  - {key: path, value: \"*\"}\n  - {key: path, value: /api/*" + limit + "  - {key: path" + limit,
			false, "tenant=x leads to tenant (limits.yaml:3), where no limit is, nor below it one that a request reaches"},
		{"behind a pattern that matches as much", "  - {key: path, value: /*}\n  - {key: path, value: /api/*" + limit, false, "tenant=x leads to"},
		{"before such a pattern", "  - {key: path, value: /api/*" + limit + "  - {key: path, value: \"*\"}\n", true, ""},
		{"behind a pattern that matches less", "  - {key: path, value: /api/x*}\n  - {key: path, value: /api/*" + limit, true, ""},
		{"exact, whatever the patterns", "  - {key: path, value: \"*\"}\n  - {key: path, value: /api/" + limit, true, ""},
		{"behind a pattern of another key", "  - {key: path, value: \"*\"}\n  - {key: route" + limit, true, ""},
	} {
		r, err := limitstest.Load(t, "domain: d\ndescriptors:\n- key: tenant\n  descriptors:\n"+tc.below)
		if err != nil {
			t.Fatal(err)
		}
		found := trace.NewReacher(r, 1).Beginning("d", limitstest.Entries("tenant=x"))
		if found.HasRule != tc.reached || tc.hint != "" && (len(found.Hints) != 1 || !strings.Contains(shortPaths(found.Hints[0]), tc.hint)) {
			t.Errorf("%s: a rule is reached: %t, want %t; the hints are %q, want %q", tc.name, found.HasRule, tc.reached, found.Hints, tc.hint)
		}
	}
}
