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
		if !strings.HasPrefix(name, "ratelimitd_limit_") {
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

// inBothAPIs runs a test in Envoy's API and in the daemon's own. ask reports whether
// a request for a cost passed, which is the same for all its descriptors.
func inBothAPIs(t *testing.T, limits string, test func(t *testing.T, d *servertest.Daemon, ask func(cost uint32, descriptors ...string) bool)) {
	t.Helper()
	t.Run("Envoy", func(t *testing.T) {
		t.Parallel()
		d := servertest.Start(t, limits)
		test(t, d, func(cost uint32, descriptors ...string) bool {
			r := servertest.Request("api", cost, descriptors...)
			if cost == 0 {
				r = servertest.Charging(t, 0, slices.Repeat([]string{"0"}, len(descriptors)), descriptors...)
			}
			return d.Send(r).GetOverallCode().String() == "OK"
		})
	})
	t.Run("Take", func(t *testing.T) {
		t.Parallel()
		d := servertest.Start(t, limits)
		test(t, d, func(cost uint32, descriptors ...string) bool {
			for i := range descriptors {
				descriptors[i] += fmt.Sprint(":", cost)
			}
			return d.Take(descriptors...).GetAllowed()
		})
	})
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

// Of two limits one sees which denied.
func TestOfTwoLimitsOneSeesWhichDenied(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		for i, want := range []bool{true, true, false} { // the third is one too many a second
			if ask(1, "user=x") != want {
				t.Errorf("request %d passes: %t", i+1, !want)
			}
		}
		wantLimits(d, map[string]string{
			"user|second": "allowed 1 (1) near 1 (1) denied 1 (1)",
			"user|month":  "allowed 2 (2) denied_by_other 1 (1)",
		})
		d.Clock.Move(time.Second)
		ask(2, "user=x")
		d.Clock.Move(time.Second)
		ask(2, "user=x") // two too many a month
		wantLimits(d, map[string]string{
			"user|second": "allowed 1 (1) near 2 (3) denied 1 (1) denied_by_other 1 (2)",
			"user|month":  "allowed 3 (4) denied 1 (2) denied_by_other 1 (1)",
		})
		wantDecisions(d, map[string]float64{`{domain="api",result="allowed",rule="user"}`: 3, `{domain="api",result="denied",rule="user"}`: 2})
	})
}

func TestCostsAreCountedAsTheyAre(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		for _, cost := range []uint32{60_000, 120_000, 1} {
			ask(cost, "tokens=x")
		}
		wantLimits(d, map[string]string{"tokens|day": "allowed 3 (180001)"})
		ask(4_000_000_000, "tokens=x")
		wantLimits(d, map[string]string{"tokens|day": "allowed 3 (180001) denied 1 (4000000000)"})
	})
}

// A peek is never counted as an admission, neither of its request nor of anything
// that it asks.
func TestPeeksAreNoAdmissions(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		for range 3 {
			if !ask(0, "user=x", "tokens=x") {
				t.Error("a peek is denied")
			}
		}
		wantLimits(d, map[string]string{"user|second": "peeked 3", "user|month": "peeked 3", "tokens|day": "peeked 3"})
		page := d.Metrics()
		for _, api := range []string{"grpc", "api_grpc"} {
			if n := page[`ratelimitd_requests_total{api="`+api+`",code="OK",outcome="allowed"}`]; n != 0 {
				t.Errorf("%v peeks are allowed requests of %s", n, api)
			}
		}
		wantDecisions(d, map[string]float64{
			`{domain="api",result="allowed",rule="user"}`: 0, `{domain="api",result="denied",rule="user"}`: 0, `{domain="api",result="peeked",rule="user"}`: 3,
			`{domain="api",result="allowed",rule="tokens"}`: 0, `{domain="api",result="denied",rule="tokens"}`: 0, `{domain="api",result="peeked",rule="tokens"}`: 3,
		})
		ask(2, "user=x")
		if ask(0, "user=x") {
			t.Error("a peek at a full limit passes")
		}
		wantLimits(d, map[string]string{"user|second": "near 1 (2) denied 1 (0) peeked 3", "user|month": "allowed 1 (2) peeked 4"})
	})
}

// A hit is near from the very one on that goes above the ratio.
func TestHitsAboveTheRatioAreNear(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct{ key, limit string }{{"bucket", "token_bucket"}, {"window", "fixed_window"}} {
		inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
			for i := range 10 {
				ask(1, rule.key+"=x")
				want := fmt.Sprintf("allowed %d (%d)", min(i+1, 8), min(i+1, 8))
				if i >= 8 {
					want += fmt.Sprintf(" near %d (%d)", i-7, i-7)
				}
				wantLimits(d, map[string]string{rule.key + "|" + rule.limit: want})
			}
		})
	}
	d := servertest.Start(t, countedByLimit, func(o *server.Options) { o.Hits = decide.HitCounting{NearRatio: 0.5} })
	d.Take("window=x:5")
	d.Take("window=x:1")
	wantLimits(d, map[string]string{"window|fixed_window": "allowed 1 (5) near 1 (1)"})
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

func TestLimitsThatOnlyCountAreShadowed(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		for i := range 4 {
			if ask(1, "tried=x") != (i < 3) {
				t.Errorf("request %d: the candidate has a say", i+1)
			}
			if !ask(1, "rule=x") {
				t.Error("a rule in shadow mode denies")
			}
		}
		wantLimits(d, map[string]string{
			"tried|real":      "allowed 2 (2) near 1 (1) denied 1 (1)",
			"tried|candidate": "near 1 (1) shadowed 3 (3)",
			"rule|n":          "near 1 (1) shadowed 3 (3)",
		})
		wantDecisions(d, map[string]float64{
			`{domain="api",result="allowed",rule="tried"}`: 3, `{domain="api",result="denied",rule="tried"}`: 1,
			`{domain="api",result="allowed",rule="rule"}`: 1, `{domain="api",result="denied",rule="rule"}`: 0, `{domain="api",result="shadowed",rule="rule"}`: 3,
		})
	})
}

// What something else denied is charged to no limit.
func TestWhatAnotherDeniesIsNotCharged(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		for range 3 {
			ask(2, "tokens=x", "closed=x")
		}
		ask(2, "tokens=x")
		wantLimits(d, map[string]string{"tokens|day": "allowed 1 (2) denied_by_other 3 (6)", "closed|token_bucket": "denied 3 (6)"})
		wantDecisions(d, map[string]float64{
			`{domain="api",result="allowed",rule="tokens"}`: 4, `{domain="api",result="denied",rule="tokens"}`: 0,
			`{domain="api",result="allowed",rule="closed"}`: 0, `{domain="api",result="denied",rule="closed"}`: 3,
		})
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

func TestBlocksAndOwnNumbersAreCountedByTheirRule(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("user=x", assign.Terms{Blocked: true})
	a.Daemon.Take("user=x:2")
	a.Daemon.Override(3, "user=y", "4/HOUR")
	a.Daemon.Override(3, "user=y", "4/HOUR")
	a.Daemon.Override(3, "nothing=y", "4/HOUR") // has no rule
	a.Daemon.Take("user=z")
	wantLimits(a.Daemon, map[string]string{
		"user|blocked":  "denied 1 (2)",
		"user|override": "allowed 1 (3) denied 1 (3)",
		"user|n":        "allowed 1 (1)",
	})
}

// The limits of a plan are counted under the plan.
func TestPlansAreCountedByTheirLimits(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, servertest.PlannedLimits)
	a.Says("tenant=pro", assign.Terms{Plan: "pro"})
	a.Daemon.Take("tenant=pro")
	a.Daemon.Take("tenant=other")
	wantLimits(a.Daemon, map[string]string{
		"tenant (plan pro)|hour": "allowed 1 (1)", "tenant (plan pro)|second": "allowed 1 (1)", "tenant (plan free)|hour": "allowed 1 (1)",
	})
}

// A share that is not enforced is counted as shadowed, and the rest as denied.
func TestEnforcedShareIsCounted(t *testing.T) {
	t.Parallel()
	const limits = "domain: api\ndescriptors: [{key: user, rate_limit: {name: n, requests: 0, period: 1s, enforce: 50%}}]\n"
	inBothAPIs(t, limits, func(t *testing.T, d *servertest.Daemon, ask func(uint32, ...string) bool) {
		passed := 0
		for i := range 100 {
			if ask(1, fmt.Sprint("user=", i)) {
				passed++
			}
		}
		wantLimits(d, map[string]string{"user|n": fmt.Sprintf("denied %d (%d) shadowed %d (%d)", 100-passed, 100-passed, passed, passed)})
		wantDecisions(d, map[string]float64{
			`{domain="api",result="allowed",rule="user"}`: float64(passed), `{domain="api",result="denied",rule="user"}`: float64(100 - passed),
		})
	})
}

// A limit that has another name is another limit.
func TestReloadThatRenamesALimitDropsItsSeries(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, countedByLimit)
	d.Take("user=x")
	d.Take("tokens=x")
	d.Reload(strings.ReplaceAll(countedByLimit, "name: second", "name: instant"))
	if got := limitsOf(d); got["user|second"] != "" || got["user|month"] != "allowed 1 (1)" || got["tokens|day"] != "allowed 1 (1)" {
		t.Errorf("after the reload: %v", got)
	}
	d.Clock.Move(time.Second)
	d.Take("user=x")
	wantLimits(d, map[string]string{"user|second": "", "user|instant": "allowed 1 (1)", "user|month": "allowed 2 (2)"})
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
