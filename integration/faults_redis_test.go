package integration

import (
	"testing"
)

// Redis is killed twice and comes back empty.
func TestKilledRedisComesBackEmpty(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	l.more(t, "Redis admits", 50, admitted)
	var before, unknown int
	for range 2 {
		f.server.Kill()
		l.more(t, "answers are degraded", 500, degradedAnswers)
		before, unknown = l.now().admitted, int(f.total("ratelimitd_redis_unknown_outcomes_total"))
		f.server.Restart()
		l.more(t, "Redis admits again", 50, admitted)
	}
	seen := l.stop()
	// Admissions before the end are forgotten.
	charged := f.charged("user=a")
	if maxCharged := seen.admitted - before + int(f.total("ratelimitd_redis_unknown_outcomes_total")) - unknown; charged < seen.admitted-before || charged > maxCharged {
		t.Errorf("Redis counts %d, of which callers were told %d", charged, seen.admitted-before)
	}
	if seen.failed+seen.denied > 0 {
		t.Errorf("callers were told: %v", seen)
	}
	f.checkLog()
}
