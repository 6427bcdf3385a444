package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// limitsOf returns what /metrics says of limits: by "rule|limit" the decisions that
// there were, each with its cost, and what came back: "allowed 2 (5) denied 1 (9)
// refunded (3)".
func limitsOf(d *servertest.Daemon) map[string]string {
	d.T.Helper()
	return limitsIn(d.Metrics())
}

func limitsIn(samples map[string]float64) map[string]string {
	type counts struct{ decisions, cost map[string]float64 }
	all := make(map[string]counts)
	for series, n := range samples {
		name, labels, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, "ratelimitd_limit_") || !strings.HasSuffix(name, "_total") {
			continue
		}
		labels = strings.NewReplacer(`domain="api",`, "", `limit="`, "", `result="`, "", `how="`, "", `rule="`, "", `"}`, "", `"`, "").Replace(labels)
		words := strings.Split(labels, ",")
		limit, result, rule := words[0], words[1], words[2]
		if name == "ratelimitd_limit_returned_cost_total" {
			result, limit = words[0], words[1]
		}
		c, ok := all[rule+"|"+limit]
		if !ok {
			c = counts{decisions: make(map[string]float64), cost: make(map[string]float64)}
			all[rule+"|"+limit] = c
		}
		if name == "ratelimitd_limit_decisions_total" {
			c.decisions[result] = n
		} else {
			c.cost[result] = n
		}
	}
	shown := make(map[string]string)
	for key, c := range all {
		var parts []string
		for _, result := range []string{"allowed", "near", "over", "denied", "denied_by_other", "shadowed", "peeked", "refunded", "given_back"} {
			switch n, cost := c.decisions[result], c.cost[result]; {
			case n > 0 && result == "peeked":
				parts = append(parts, fmt.Sprintf("%s %v", result, n))
			case n > 0:
				parts = append(parts, fmt.Sprintf("%s %v (%.0f)", result, n, cost))
			case cost > 0:
				parts = append(parts, fmt.Sprintf("%s (%.0f)", result, cost))
			}
		}
		shown[key] = strings.Join(parts, " ")
	}
	return shown
}

func wantLimits(d *servertest.Daemon, want map[string]string) {
	d.T.Helper()
	got := limitsOf(d)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			d.T.Errorf("%s:\n got %q\nwant %q", key, got[key], want[key])
		}
	}
}

const countedByLimit = `
domain: api
descriptors:
  - key: user
    rate_limits:
      - {name: second, algorithm: fixed_window, requests: 2, period: 1s}
      - {name: month, algorithm: fixed_window, requests: 5, period: 30d}
  - {key: tokens, rate_limit: {name: day, algorithm: fixed_window, requests: 1000000, period: 1d}}
  - {key: bucket, rate_limit: {algorithm: token_bucket, requests: 10, period: 1d}}
  - {key: window, rate_limit: {algorithm: fixed_window, requests: 10, period: 1d}}
  - {key: closed, rate_limit: {requests: 0, period: 1s}}
  - {key: rule, shadow_mode: true, rate_limit: {name: n, algorithm: fixed_window, requests: 1, period: 1d}}
  - key: tried
    rate_limits:
      - {name: real, algorithm: fixed_window, requests: 3, period: 1d}
      - {name: candidate, algorithm: fixed_window, requests: 1, period: 1d, shadow_mode: true}
`

// takes makes takes such as "user=x:2 closed=x", with a cost behind each colon; "+1s" moves
// the clock.
func takes(d *servertest.Daemon, steps ...string) {
	d.T.Helper()
	for _, step := range steps {
		if by, isMove := strings.CutPrefix(step, "+"); isMove {
			span, err := time.ParseDuration(by)
			if err != nil {
				d.T.Fatal(err)
			}
			d.Clock.Move(span)
			continue
		}
		d.Take(strings.Fields(step)...)
	}
}

// Of several limits one sees which denied; costs are counted as they are, and what was not
// charged apart from what was.
func TestWhatEachLimitSaysIsCounted(t *testing.T) {
	t.Parallel()
	user := []string{"user=x", "user=x", "user=x", "+1s", "user=x:2", "+1s", "user=x:2"}
	for _, c := range []struct {
		name      string
		steps     []string
		limits    map[string]string
		decisions map[string]float64 // by "result rule"
	}{
		{"one too many a second", user[:3],
			map[string]string{"user|second": "allowed 1 (1) near 1 (1) denied 1 (1)", "user|month": "allowed 2 (2) denied_by_other 1 (1)"},
			map[string]float64{"allowed user": 2, "denied user": 1}},
		{"then two too many a month", user,
			map[string]string{"user|second": "allowed 1 (1) near 2 (3) denied 1 (1) denied_by_other 1 (2)", "user|month": "allowed 3 (4) denied 1 (2) denied_by_other 1 (1)"},
			map[string]float64{"allowed user": 3, "denied user": 2}},
		{"large costs", []string{"tokens=x:60000", "tokens=x:120000", "tokens=x:1", "tokens=x:4000000000"},
			map[string]string{"tokens|day": "allowed 3 (180001) denied 1 (4000000000)"},
			map[string]float64{"allowed tokens": 3, "denied tokens": 1}},
		{"peeks are no admissions", []string{"user=x:0 tokens=x:0", "user=x:0 tokens=x:0", "user=x:2", "user=x:0"},
			map[string]string{"user|second": "near 1 (2) denied 1 (0) peeked 2", "user|month": "allowed 1 (2) peeked 3", "tokens|day": "peeked 2"},
			map[string]float64{"allowed user": 1, "denied user": 1, "peeked user": 2, "allowed tokens": 0, "denied tokens": 0, "peeked tokens": 2}},
		{"below the ratio", slices.Repeat([]string{"bucket=x window=x"}, 8),
			map[string]string{"bucket|token_bucket": "allowed 8 (8)", "window|fixed_window": "allowed 8 (8)"},
			map[string]float64{"allowed bucket": 8, "denied bucket": 0, "allowed window": 8, "denied window": 0}},
		{"above the ratio", slices.Repeat([]string{"bucket=x window=x"}, 9),
			map[string]string{"bucket|token_bucket": "allowed 8 (8) near 1 (1)", "window|fixed_window": "allowed 8 (8) near 1 (1)"},
			map[string]float64{"allowed bucket": 9, "denied bucket": 0, "allowed window": 9, "denied window": 0}},
		{"limits and rules that only count", slices.Repeat([]string{"tried=x", "rule=x"}, 4),
			map[string]string{"tried|real": "allowed 2 (2) near 1 (1) denied 1 (1)", "tried|candidate": "near 1 (1) shadowed 3 (3)", "rule|n": "near 1 (1) shadowed 3 (3)"},
			map[string]float64{"allowed tried": 3, "denied tried": 1, "allowed rule": 1, "denied rule": 0, "shadowed rule": 3}},
		{"what another denies is not charged", []string{"tokens=x:2 closed=x:2", "tokens=x:2 closed=x:2", "tokens=x:2"},
			map[string]string{"tokens|day": "allowed 1 (2) denied_by_other 2 (4)", "closed|token_bucket": "denied 2 (4)"},
			map[string]float64{"allowed tokens": 3, "denied tokens": 0, "allowed closed": 0, "denied closed": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, countedByLimit)
			takes(d, c.steps...)
			wantLimits(d, c.limits)
			decisions := make(map[string]float64)
			for of, n := range c.decisions {
				result, rule, _ := strings.Cut(of, " ")
				decisions[fmt.Sprintf(`{domain="api",result=%q,rule=%q}`, result, rule)] = n
			}
			wantDecisions(d, decisions)
		})
	}
	d := servertest.Start(t, countedByLimit, func(o *server.Options) { o.Hits = decide.HitCounting{NearRatio: 0.5} })
	takes(d, "window=x:5", "window=x:1")
	wantLimits(d, map[string]string{"window|fixed_window": "allowed 1 (5) near 1 (1)"})
}

// A share that is not enforced is counted as shadowed, and the rest as denied.
func TestEnforcedShareIsCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, "domain: api\ndescriptors: [{key: user, rate_limit: {name: n, requests: 0, period: 1s, enforce: 50%}}]\n")
	passed := 0
	for i := range 100 {
		if d.Take(fmt.Sprint("user=", i)).GetAllowed() {
			passed++
		}
	}
	wantLimits(d, map[string]string{"user|n": fmt.Sprintf("denied %d (%d) shadowed %d (%d)", 100-passed, 100-passed, passed, passed)})
}

// Pauses that deny nobody are counted apart.
func TestPausesAreCounted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `domain: api
descriptors:
- {key: login, rate_limit: {name: n, requests: 1, period: 1m, block_for: 10m}}
- {key: tried, shadow_mode: true, rate_limit: {name: n, requests: 1, period: 1m, block_for: 10m}}
`)
	for _, user := range []string{"a", "b"} {
		takes(d, "login="+user, "login="+user, "login="+user, "tried="+user, "tried="+user)
	}
	got := d.Metrics()
	for _, labels := range []string{`limit="n",result="denied",rule="login"`, `limit="n",result="shadowed",rule="tried"`} {
		if n := got[`ratelimitd_limit_pauses_total{domain="api",`+labels+`}`]; n != 2 {
			t.Errorf("%s: %v pauses, want 2", labels, n)
		}
	}
}

// What was used before it was asked for is charged beyond the limit. With postpaid:
// true the charge that goes beyond it is allowed, and those after it are over.
func TestUseBeyondALimitIsOver(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ReportLimits)
	for _, hits := range []string{"10", "10", "10"} {
		d.Send(servertest.Charging(t, 0, []string{hits}, "tokens=a"))
		d.Send(servertest.Charging(t, 0, []string{hits}, "paid=a"))
		d.Send(servertest.Charging(t, 0, []string{hits}, "strict=a"))
	}
	d.Send(servertest.Charging(t, 0, []string{"5"}, "paid=a"))
	d.Send(servertest.Charging(t, 0, []string{"0"}, "tokens=a"))
	d.Send(servertest.Charging(t, 0, []string{""}, "tokens=a"))
	d.Send(servertest.Charging(t, 0, []string{"7", ""}, "tokens=b", "closed=a")) // charged though it is denied beside
	wantLimits(d, map[string]string{
		"tokens|fixed_window": "allowed 2 (17) near 1 (10) over 1 (10) denied 2 (1)",
		"paid|fixed_window":   "allowed 1 (10) near 2 (20) over 1 (5)",
		"strict|fixed_window": "allowed 1 (10) near 1 (10) denied 1 (10)",
	})
}

// What comes back is counted for itself, and takes nothing from what was charged.
func TestReturnedCostsAreCountedApart(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, countedByLimit)
	taken := d.Take("tokens=x:100", "user=x:1")
	if err := d.GiveBack(servertest.Taking("tokens=x:100", "user=x:1"), taken); err != nil {
		t.Fatal(err)
	}
	d.Take("tokens=x:50")
	d.Send(servertest.Charging(t, 0, []string{"-20"}, "tokens=x"))
	denied := d.Take("tokens=x:7", "closed=x")
	if err := d.GiveBack(servertest.Taking("tokens=x:7", "closed=x"), denied); err != nil { // of nothing
		t.Fatal(err)
	}
	wantLimits(d, map[string]string{
		"tokens|day": "allowed 2 (150) denied_by_other 1 (7) refunded (20) given_back (100)",
		"user|month": "allowed 1 (1) given_back (1)",
	})
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="given_back"}`: 2,
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="allowed"}`:    2,
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="denied"}`:     1,
	})
}

func TestBlocksOwnNumbersAndPlansAreCountedByTheirRule(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("user=x", assign.Terms{Blocked: true})
	a.Daemon.Take("user=x:2")
	a.Daemon.Override(3, "user=y", "4/HOUR")
	a.Daemon.Override(3, "user=y", "4/HOUR")
	a.Daemon.Override(3, "nothing=y", "4/HOUR") // has no rule
	a.Daemon.Take("user=z")
	a.Says("tenant=pro", assign.Terms{Plan: "pro"})
	takes(a.Daemon, "tenant=pro", "tenant=other")
	wantLimits(a.Daemon, map[string]string{
		"tenant (plan pro)|hour": "allowed 1 (1)", "tenant (plan pro)|second": "allowed 1 (1)", "tenant (plan free)|hour": "allowed 1 (1)",
		"user|blocked":  "denied 1 (2)",
		"user|override": "allowed 1 (3) denied 1 (3)",
		"user|n":        "allowed 1 (1)",
	})
}

// A request that began before a reload has limits that the rule no longer has, and one
// that it still has.
func TestRequestInFlightBringsNoSeriesBack(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting() // after whose answers nothing remains
	d := servertest.Start(t, countedByLimit, servertest.On(store))
	answered := make(chan error, 1)
	go func() {
		_, err := d.Try(servertest.Request("api", 1, "user=x"))
		answered <- err
	}()
	servertest.Within(t, "the store is asked", store.Taking)
	d.Reload(strings.ReplaceAll(countedByLimit, "name: second", "name: instant"))
	close(store.Release)
	if err := servertest.Within(t, "the answer", answered); err != nil {
		t.Fatal(err)
	}
	got := limitsOf(d)
	if _, shown := got["user|second"]; shown || got["user|month"] != "near 1 (1)" {
		t.Errorf("after the request: %v", got)
	}
	d.Ask("api", 1, "user=x")
	wantLimits(d, map[string]string{"user|instant": "near 1 (1)", "user|month": "near 2 (2)"})
}
