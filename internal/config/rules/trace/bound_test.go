package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
)

// One search may compare all rules of a level. Many of one request share what one may
// compare, so each of them finds nothing near there.
func TestSearchesAmongManyRulesAreBounded(t *testing.T) {
	t.Parallel()
	const rules, subjects = 1000, 1000
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range rules {
		fmt.Fprintf(&text, "- {key: tenant, value: t%d, rate_limit: {requests: 1, period: 1s}}\n", i)
	}
	r, err := limitstest.Load(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	if s := trace.Of(r.Domain("d"), limitstest.Entries("tenant=T7"), trace.MaxLooks); s.Near == nil || s.Near.Path != "tenant=t7" {
		t.Errorf("got %+v", s)
	}
	reacher := trace.NewReacher(r, subjects)
	for _, subject := range []string{"tenant=T7", "tenant=x," + strings.Repeat("tennant=y,", 30) + "z=1"} {
		if found := reacher.Beginning("d", limitstest.Entries(subject)); found.HasRule || len(found.Hints) != 1 || strings.Contains(found.Hints[0], "did you mean") {
			t.Errorf("%s: %+v", subject, found)
		}
	}
	if !reacher.Beginning("d", limitstest.Entries("tenant=t7")).HasRule {
		t.Error("tenant=t7 has no rule")
	}
}
