package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// All rules together know more subjects than an answer may have.
func TestAnAnswerAboutAllRulesIsBounded(t *testing.T) {
	const rules, subjects = 100, 300
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for i := range rules {
		fmt.Fprintf(&limits, "- {key: k%d, rate_limit: {requests: 0, period: 1h}}\n", i)
	}
	s := portless(t, limits.String(), servertest.KeepingTops)
	for i := range rules {
		for j := 0; j < subjects; j += 100 {
			var all []string
			for n := range 100 {
				all = append(all, fmt.Sprintf("k%d=%d", i, j+n))
			}
			if _, err := s.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, all...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, _ := s.Top(top.Question{})
	if a.Total != rules*subjects {
		t.Errorf("%d in all", a.Total)
	}
	counts := 0
	for _, r := range a.Rules {
		counts += len(r.Summary.Counts)
	}
	if counts != top.MaxRows {
		t.Errorf("%d counts, at most %d may be", counts, top.MaxRows)
	}
}
