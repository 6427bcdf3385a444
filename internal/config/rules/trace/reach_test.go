package trace_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
)

func TestReach(t *testing.T) {
	t.Parallel()
	r, err := limitstest.Load(t, traced)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		domain, entries string
		exactly, any    bool // whether a rule is for these very entries, and for what begins with them
		hint            string
	}{
		{"d", "plan=gold", true, true, ""},
		{"d", "plan=x", false, true, "plan=x is only the beginning of a rule"},
		{"d", "nothing=x", false, false, "nothing=x leads to no limit"},
		{"d", "plam=x", false, false, "did you mean plan (limits.yaml:3)?"},
		{"e", "plan=x", false, false, `domain: found "e"; there is none of this name (d?)`},
	} {
		reacher := trace.NewReacher(r, 1)
		for _, c := range []struct {
			got  trace.Reach
			want bool
		}{
			{reacher.Exactly(tc.domain, limitstest.Entries(tc.entries)), tc.exactly},
			{reacher.Beginning(tc.domain, limitstest.Entries(tc.entries)), tc.any},
		} {
			if hint := shortPaths(strings.Join(c.got.Hints, "\n")); c.got.HasRule != c.want || (hint == "") != c.want || !c.want && !strings.Contains(hint, tc.hint) {
				t.Errorf("%s of %s: got %+v, want %t: %s", tc.entries, tc.domain, c.got, c.want, tc.hint)
			}
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
			false, "tenant=x leads to no limit"},
		{"behind a pattern that matches as much", "  - {key: path, value: /*}\n  - {key: path, value: /api/*" + limit, false, "tenant=x leads to no limit"},
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
