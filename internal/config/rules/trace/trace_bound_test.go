//go:build !race

package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
)

// Among 100,000 rules at one level, many descriptors take no longer than a few.
func TestTraceOfManyRulesIsBounded(t *testing.T) {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for i := range 100_000 {
		fmt.Fprintf(&s, "- {key: user, value: customer-%d, rate_limit: {requests: 1, period: 1s}}\n", i)
	}
	r, err := limitstest.Load(t, s.String())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	tr := trace.Of(r, "d", [][]bucket.Entry{limitstest.Entries("user=Customer-7")})[0]
	t.Logf("one descriptor took %s", time.Since(began))
	if len(tr.Hints) != 1 || !strings.Contains(tr.Hints[0], "user=customer-7 ") || tr.Levels[0].NotShown != 100_000-len(tr.Levels[0].Candidates) {
		t.Errorf("got %+v", tr)
	}
	many := make([][]bucket.Entry, 100)
	for i := range many {
		many[i] = limitstest.Entries(strings.Repeat(fmt.Sprintf("user=Customer-%d,", i), 30) + "user=" + strings.Repeat(" ", 5000))
	}
	began = time.Now()
	trace.Of(r, "d", many)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("100 descriptors took %s", took)
	} else {
		t.Logf("100 descriptors took %s", took)
	}
}
