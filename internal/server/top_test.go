package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// A hundred rules have as many subjects as they can keep.
func TestAnAnswerAboutAllRulesHoldsLittle(t *testing.T) {
	const rules, maxBytes = 100, 16 << 20
	subjects := 300
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
	before, peak := heaptest.InUse(), int64(0)
	// What is reachable while a question is answered, and what it let go of while that was
	// looked at.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			if a, _ := s.Top(top.Question{}); a.Total != uint64(rules*subjects) {
				t.Errorf("%d in all", a.Total)
			}
		}
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			peak = max(peak, heaptest.InUse()-before)
		}
	}
	if peak > maxBytes {
		t.Errorf("%d bytes are held, at most %d may be", peak, maxBytes)
	}
	t.Logf("%d bytes are held", peak)
}
