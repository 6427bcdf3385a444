//go:build !race

package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
)

// Among 100,000 rules at one level a search finds what is near, and many searches take no
// longer than a few, since none looks further than its share.
func TestSearchesAmongManyRulesAreBounded(t *testing.T) {
	t.Parallel()
	const rules, subjects = 100_000, 1000
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
	reacher, began := trace.NewReacher(r, subjects), time.Now()
	for i := range subjects {
		asked := limitstest.Entries(fmt.Sprintf("tenant=x%d,%s", i, strings.Repeat("tennant=y,", 30)+"z=1"))
		if found := reacher.Beginning("d", asked); found.HasRule || len(found.Hints) != 1 || strings.Contains(found.Hints[0], "did you mean") {
			t.Fatalf("of subject %d: %+v", i, found)
		}
		if !reacher.Beginning("d", limitstest.Entries(fmt.Sprintf("tenant=t%d", i))).HasRule {
			t.Fatalf("subject %d has no rule", i)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d subjects took %s", subjects, took)
	}
}
