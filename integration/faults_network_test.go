package integration

import (
	"testing"
)

// The connection is cut many times between request and reply: the caller gets
// a degraded answer, and nothing is charged twice.
func TestCutOffReplyIsChargedAtMostOnce(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow", "--redis-timeout", "10s")
	for range 5 {
		cut := f.proxy.CutAfter("|user=single#")
		if r := f.ask("faults", 1, "user=single"); !degraded(r) || !ok(r) {
			t.Errorf("the caller whose reply was cut off got %v", r)
		}
		<-cut
		f.waitForRedis()
	}
	if n := f.charged("user=single"); n != 5 {
		t.Errorf("5 requests of 1 have charged %d", n)
	}

	l := f.startLoad("user=a")
	for range 20 {
		<-f.proxy.CutAfter("|user=a#")
		l.more(t, "Redis admits again", 10, admitted)
	}
	f.checkCharges("user=a", l.stop())
	if n := f.total("ratelimitd_redis_unknown_outcomes_total"); n < 25 {
		t.Errorf("%v outcomes are unknown, want 25 at least", n)
	}
	if f.breakerIsOpen() {
		t.Error("single cuts have opened the breaker")
	}
}

// Replies after the deadline reach nobody. Their requests are charged once.
func TestLateReplyIsChargedOnce(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	for range 5 {
		l.more(t, "Redis admits", 20, admitted)
		f.proxy.Hold("evalsha")
		l.more(t, "answers are degraded", 50, degradedAnswers)
		f.proxy.Heal(t)
	}
	l.more(t, "Redis admits", 20, admitted)
	f.checkCharges("user=a", l.stop())
	if f.degraded(`reason="timeout"`) == 0 || f.total("ratelimitd_redis_unknown_outcomes_total") == 0 {
		t.Error("no answer is counted as late")
	}
	f.checkLog()
}
