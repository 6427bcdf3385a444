package fleet_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Rules that differ for a while are logged, and again from time to time.
func TestRulesThatDifferAreLogged(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	var text asynctest.Buffer
	rules := "aaa"
	one := open(t, o).join(fleet.Options{
		Address: "web-1", Clock: clock.Time, Rules: func() string { return "aaa" },
		Log: slog.New(slog.NewTextHandler(&text, nil)),
	})
	two := open(t, o).join(fleet.Options{
		Address: "web-2", Clock: clock.Time, Rules: func() string { return rules },
	})
	// pass lets time go by and returns how many more warnings there are.
	pass := func(d time.Duration) int {
		t.Helper()
		before := strings.Count(text.String(), "different rules")
		for ; d > 0; d -= 2 * time.Second {
			clock.Move(2 * time.Second)
			signIn(t, two)
			signIn(t, one)
		}
		return strings.Count(text.String(), "different rules") - before
	}
	for _, step := range []struct {
		rules string
		after time.Duration
		want  int
		what  string
	}{
		{"aaa", time.Minute, 0, "equal rules"},
		{"bbb", 10 * time.Second, 0, "a reload under way"},
		{"aaa", time.Minute, 0, "a reload that was taken back"},
		{"bbb", 14 * time.Second, 1, "a difference that stays"},
		{"bbb", 9 * time.Minute, 0, "one that was told"},
		{"bbb", 2 * time.Minute, 1, "one that was told long ago"},
		{"ccc", 14 * time.Second, 1, "another difference"},
		{"", time.Hour, 0, "no fingerprint"},
	} {
		rules = step.rules
		if n := pass(step.after); n != step.want {
			t.Errorf("%s: %d warnings, want %d", step.what, n, step.want)
		}
	}
	if !strings.Contains(text.String(), `rules="aaa at web-1, bbb at web-2"`) {
		t.Errorf("the warnings do not say who has what:\n%s", text.String())
	}
}

func TestMembersKnowWhetherRulesDiffer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOptions(redisconn.Single, server.Addr())
	rules := "aaa"
	one := open(t, o).join(fleet.Options{Address: "web-1", Rules: func() string { return "aaa" }})
	two := open(t, o).join(fleet.Options{Address: "web-2", Rules: func() string { return rules }})
	three := open(t, o).join(fleet.Options{Address: "web-3"}) // has no fingerprint
	for _, step := range []struct {
		rules string
		want  bool
	}{{"aaa", false}, {"bbb", true}, {"", false}, {"ccc", true}} {
		rules = step.rules
		for _, m := range []*fleet.Membership{three, two, one} {
			signIn(t, m)
		}
		if got := one.HasDifferentRules(); got != step.want {
			t.Errorf("%q beside aaa differ: %t", rules, got)
		}
	}
	server.Kill()
	_ = one.SignIn(t.Context())
	if !one.HasDifferentRules() || one.Size() != 3 {
		t.Errorf("without Redis the last known are forgotten: %t, %d daemons", one.HasDifferentRules(), one.Size())
	}
}

func TestRulesDifferNamesDaemons(t *testing.T) {
	t.Parallel()
	var m []fleet.Daemon
	add := func(n int, rules string) {
		for range n {
			m = append(m, fleet.Daemon{Address: fmt.Sprint("web-", len(m)), Rules: rules})
		}
	}
	add(7, "0123456789abcdef")
	if got := fleet.RulesDiffer(m); got != "" {
		t.Errorf("equal rules give %q", got)
	}
	add(1, "fedc")
	want := "0123456789ab at web-0, web-1, web-2, web-3, web-4 and 2 more, fedc at web-7"
	if got := fleet.RulesDiffer(m); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Daemons whose time zones differ do not have the same rules, and the lists say which.
func TestTimeZonesAreOfTheRules(t *testing.T) {
	t.Parallel()
	const rules = "0123456789abcdef"
	one, two := fleet.InZones(rules, "2025c-11111111"), fleet.InZones(rules, "2026a-22222222")
	if got := fleet.RulesDiffer([]fleet.Daemon{{Address: "web-1", Rules: one}, {Address: "web-2", Rules: one}}); got != "" {
		t.Errorf("the same differ: %s", got)
	}
	got := fleet.RulesDiffer([]fleet.Daemon{{Address: "web-1", Rules: one}, {Address: "web-2", Rules: two}})
	if want := "0123456789ab+2025c-11111111 at web-1, 0123456789ab+2026a-22222222 at web-2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
