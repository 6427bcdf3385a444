package fallback_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
)

func TestDegradedRequestCountsOnceAMode(t *testing.T) {
	f := newFixture(t, local, 1)
	own, open := hit(t, spec(inherit, 1), "own", 1), hit(t, spec(allow, 1), "open", 1)
	in := func(reason fallback.Reason, hits ...bucket.Hit) func(*fallback.Degraded) {
		return func(d *fallback.Degraded) { f.Add(d, hits, reason) }
	}
	for _, request := range [][]func(*fallback.Degraded){
		{},
		{in(fallback.Timeout, own, own, open, own)},
		{in(fallback.Timeout, open, open)},
		{in(fallback.BreakerOpen, hit(t, spec(deny, 1), "shut", 1), own)},
		{in(fallback.Refused, hit(t, spec(fail, 1), "fail", 1))},
		{in(fallback.QueueFull)},
		{in("whatever a caller sent", own)},
		// What fails several times in one request is one answer.
		{in(fallback.Unreadable, open), in(fallback.Timeout, open), in(fallback.Unreachable, open, own)},
	} {
		var d fallback.Degraded
		for _, add := range request {
			add(&d)
		}
		f.Count(&d)
	}

	counts := map[string]int{
		"local timeout": 1, "allow timeout": 2,
		"deny breaker_open": 1, "local breaker_open": 1,
		"error refused":    1,
		"allow unreadable": 1, "local unreachable": 1,
	}
	var want strings.Builder
	want.WriteString("# TYPE ratelimitd_degraded_answers_total counter\n")
	want.WriteString("# HELP ratelimitd_degraded_answers_total Requests that the store did not decide, by what answered instead and why. One whose limits have several modes counts once for each.\n")
	for _, m := range bucket.FailureModes() {
		for _, r := range fallback.Reasons() {
			fmt.Fprintf(&want, "ratelimitd_degraded_answers_total{mode=%q,reason=%q} %d\n", m, r, counts[fmt.Sprint(m, " ", r)])
		}
	}
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want.String())); err != nil {
		t.Error(err)
	}
}

func TestCountWorksWithoutMetrics(t *testing.T) {
	f := fallback.New(fallback.Options{Mode: allow})
	var d fallback.Degraded
	f.Add(&d, []bucket.Hit{hit(t, spec(inherit, 1), "k", 1)}, fallback.Unreachable)
	f.Count(&d)
}
