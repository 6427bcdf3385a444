package envoyrls_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// admitted makes 30 takes, and returns how many of them were allowed.
func admitted(a servertest.Assigned, descriptor string) int {
	a.Daemon.T.Helper()
	n := 0
	for range 30 {
		if a.Daemon.Take(descriptor).GetAllowed() {
			n++
		}
	}
	return n
}

func TestWhoHasWhichPlanIsAssigned(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("tenant=pro", assign.Terms{Plan: "pro"})
	a.Says("tenant=internal", assign.Terms{Plan: "internal"})
	a.Says("tenant=gone", assign.Terms{Plan: "gold"})
	a.Says("tenant=other", assign.Terms{Plan: "free"})
	a.Says("tenant=other,route=/", assign.Terms{Plan: "pro"})
	for descriptor, want := range map[string]int{
		"tenant=nobody":          2,
		"tenant=pro":             4, // a second
		"tenant=internal":        30,
		"tenant=gone":            2, // as if none were assigned
		"tenant=nobody,route=/":  30,
		"tenant=pro,route=/":     9, // a plan is also for longer descriptors
		"tenant=other,route=/":   9, // the longer subject takes precedence
		"tenant=other,route=/x":  1,
		"tenant=gone,route=/":    30,
		"user=pro":               3,
		"tenant=other":           2,
		"tenant=internal,route=": 30,
	} {
		if n := admitted(a, descriptor); n != want {
			t.Errorf("%s: %d are admitted, want %d", descriptor, n, want)
		}
	}
}

func TestStateGoesOnWithAnotherPlan(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	if n := admitted(a, "tenant=x"); n != 2 {
		t.Fatalf("%d are admitted", n)
	}
	a.Says("tenant=x", assign.Terms{Plan: "pro"})
	if n := admitted(a, "tenant=x"); n != 3 { // of 5, 2 are used
		t.Errorf("after the move %d are admitted", n)
	}
	a.Says("tenant=x", assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Limit: "hour", Requests: 7}, {Limit: "second", Requests: 100}}})
	if n := admitted(a, "tenant=x"); n != 2 {
		t.Errorf("with numbers of its own %d are admitted", n)
	}
	a.Delete(assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "tenant", Value: "x"}}}, "")
	if n := admitted(a, "tenant=x"); n != 0 {
		t.Errorf("back on the free plan %d are admitted", n)
	}
}

func TestNumbersAreAssigned(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("user=x", assign.Terms{Numbers: []assign.Numbers{{Limit: "n", Requests: 5}}})
	a.Says("user=other", assign.Terms{Numbers: []assign.Numbers{{Limit: "m", Requests: 5}}})
	a.Says("user=free", assign.Terms{Unlimited: true})
	a.Says("user=none", assign.Terms{Numbers: []assign.Numbers{{Limit: "n"}}})
	for descriptor, want := range map[string]int{"user=x": 5, "user=other": 3, "user=free": 30, "user=none": 0, "user=y": 3} {
		if n := admitted(a, descriptor); n != want {
			t.Errorf("%s: %d are admitted, want %d", descriptor, n, want)
		}
	}
	// The numbers of the request take precedence over assigned ones.
	if got := a.Daemon.Override(9, "user=free", "7/HOUR"); !strings.HasPrefix(got, "OVER_LIMIT; OVER_LIMIT  7/HOUR") {
		t.Errorf("with numbers of its own: %s", got)
	}
	if got := servertest.Show(a.Daemon.Ask("api", 1, "user=free")); got != "OK; OK remaining 4294967295" {
		t.Errorf("unlimited: %s", got)
	}
}

func TestBlockGoesBeforeAll(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	end := a.Daemon.Clock.Time().Add(90 * time.Second)
	a.Says("tenant=x", assign.Terms{Blocked: true}, end)
	a.Says("tenant=x,route=/", assign.Terms{Plan: "pro"})
	a.Says("trial=x", assign.Terms{Blocked: true})
	a.Says("nothing=x", assign.Terms{Blocked: true})
	const blocked = "OVER_LIMIT; OVER_LIMIT blocked 0/SECOND remaining 0 reset 1m30s; retry-after: 90"
	if got := servertest.Show(a.Daemon.Ask("api", 1, "tenant=x")); got != blocked {
		t.Errorf("got  %s\nwant %s", got, blocked)
	}
	if got := servertest.Show(a.Daemon.Ask("api", 1, "tenant=x,route=/")); got != blocked {
		t.Errorf("below: %s", got)
	}
	if got := a.Daemon.Override(1, "tenant=x", "7/HOUR"); got != blocked {
		t.Errorf("with numbers of its own: %s", got)
	}
	for _, descriptor := range []string{"trial=x", "nothing=x"} {
		r := a.Daemon.Take(descriptor)
		if r.GetAllowed() || r.GetRetryAfter() != nil || r.GetDegraded() || r.GetLimits()[0].GetName() != "blocked" {
			t.Errorf("%s: %s", descriptor, r)
		}
	}
	// Limits beside a block are shown and charged nothing.
	for range 5 {
		r := a.Daemon.Take("user=y", "tenant=x")
		if r.GetAllowed() || r.GetDeniedBy() != 1 || r.GetLimits()[0].GetRemaining() != 3 || r.GetRetryAfter().AsDuration() != 90*time.Second {
			t.Errorf("beside a block: %s", r)
		}
	}
	a.Daemon.Clock.Move(90 * time.Second)
	if got := servertest.Show(a.Daemon.Ask("api", 1, "tenant=x")); !strings.HasPrefix(got, "OK; OK hour 2/HOUR remaining 1") {
		t.Errorf("once it has ended: %s", got)
	}
}

// What was already used is charged although its subject is now blocked.
func TestUseIsChargedToTheBlocked(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("tokens=x", assign.Terms{Blocked: true})
	r := servertest.Request("api", 0, "tokens=x")
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(10)
	if got := servertest.Show(a.Daemon.Send(r)); !strings.HasPrefix(got, "OVER_LIMIT") {
		t.Errorf("a report of the blocked: %s", got)
	}
	a.Delete(assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "tokens", Value: "x"}}}, "")
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	if got := servertest.Show(a.Daemon.Send(r)); !strings.HasPrefix(got, "OK; OK  21/HOUR remaining 11") {
		t.Errorf("after the block: %s", got)
	}
}

func TestDaemonInShadowBlocksNobody(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits, func(o *server.Options) { o.Modes.Shadow = true })
	a.Says("tenant=x", assign.Terms{Blocked: true})
	r := a.Daemon.Take("user=y", "tenant=x")
	if !r.GetAllowed() || r.GetLimits()[0].GetRemaining() != 2 || r.GetLimits()[1].GetAllowed() {
		t.Errorf("got %s", r)
	}
}

func TestUnmatchedMayBeDenied(t *testing.T) {
	t.Parallel()
	const bare = "domain: api\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1h}}\n- {key: b, plans: {p: {requests: 1, period: 1h}}}\n- {key: c, plans: {p: {requests: 1, period: 1h}}, plan: p}\n"
	for _, c := range []struct {
		name, head string
		byDefault  bool
		want       bool
	}{
		{"nobody says", "", false, true},
		{"the setting says", "", true, false},
		{"the domain says", "unmatched: deny\n", false, false},
		{"the domain says otherwise", "unmatched: allow\n", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := servertest.StartAssigned(t, c.head+bare, func(o *server.Options) { o.Modes.DenyUnmatched = c.byDefault })
			a.Says("c=y", assign.Terms{Plan: "misspelt"})
			result := "denied"
			if c.want {
				result = "allowed"
			}
			for _, descriptor := range []string{"nothing=x", "a=x,b=y", "b=x"} {
				r := a.Daemon.Take(descriptor)
				if r.GetAllowed() != c.want || !c.want && r.GetLimits()[0].GetName() != "unmatched" {
					t.Errorf("%s: %s", descriptor, r)
				}
			}
			if r := a.Daemon.Take("c=x"); !r.GetAllowed() {
				t.Errorf("without a plan of its own: %s", r)
			}
			if r := a.Daemon.Take("c=y"); r.GetAllowed() != c.want {
				t.Errorf("with a plan that is not there: %s", r)
			}
			unmatched := 3.
			if !c.want {
				unmatched++
			}
			a.Daemon.WantMetric(`ratelimitd_unmatched_descriptors_total{domain="api",result="`+result+`"}`, unmatched)
			if got := a.Daemon.Override(1, "nothing=x", "7/HOUR"); !strings.HasPrefix(got, "OK") {
				t.Errorf("with numbers of its own: %s", got)
			}
			if got := servertest.Show(a.Daemon.Ask("elsewhere", 1, "nothing=x")); !strings.HasPrefix(got, "OK") {
				t.Errorf("in an unknown domain: %s", got)
			}
		})
	}
}
