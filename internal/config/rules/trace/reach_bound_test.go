//go:build !race

package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
)

// A rule is found, or not, and hints are given, wherever a subject stands among others,
// and the work stays bounded.
func TestReachOfManySubjectsIsBounded(t *testing.T) {
	t.Parallel()
	const rules, subjects = 100_000, 1000
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n- key: user\n  rate_limit: {requests: 1, period: 1s}\n")
	for i := range rules {
		fmt.Fprintf(&text, "- {key: tenant, value: t%d, rate_limit: {requests: 1, period: 1s}}\n", i)
	}
	r, err := limitstest.Load(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, subject string
		hasRule       bool
		hint          string
	}{
		{"a misspelt key", "tennant=t%d", false, "no descriptor here has the key tennant; tenant (limits.yaml:5) differs from it by one letter"},
		{"a misspelt key further in", "tenant=t1,uesr=%d", false, "tenant=t1 has a limit (limits.yaml:6), but the descriptor goes on"},
		{"another value", "tenant=x%d", false, "rules of the domain begin with tenant=t0 (limits.yaml:5), user (limits.yaml:3) and 99999 more"},
		{"a rule", "tenant=t%d", true, ""},
	} {
		reacher := trace.NewReacher(r, subjects)
		for i := range subjects {
			found := reacher.Beginning("d", limitstest.Entries(fmt.Sprintf(tc.subject, i)))
			hint := ""
			if len(found.Hints) > 0 {
				hint = shortPaths(found.Hints[0])
			}
			if found.HasRule != tc.hasRule || len(found.Hints) > 1 || !strings.Contains(hint, tc.hint) || (hint == "") != (tc.hint == "") {
				t.Fatalf("%s: of subject %d: %+v, want the hint %q", tc.name, i, found, tc.hint)
			}
		}
		if looked, bound := reacher.Looked(), trace.MaxLooks+rules+1; looked > bound {
			t.Errorf("%s: %d descriptors were looked at, more than %d", tc.name, looked, bound)
		}
	}
	if found := trace.NewReacher(r, 1).Beginning("d", limitstest.Entries("tenant=T5")); len(found.Hints) != 1 || !strings.Contains(found.Hints[0], `did you mean tenant=t5`) {
		t.Errorf("of one subject: %+v", found)
	}
}
