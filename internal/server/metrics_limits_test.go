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
)

// limits returns what /metrics says of limits: by "rule|limit" the decisions that
// there were, each with its cost, and what came back: "allowed 2 (5) denied 1 (9)
// refunded (3)".
func (d *daemon) limits() map[string]string {
	d.t.Helper()
	return limitsIn(d.metrics())
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
			c = counts{make(map[string]float64), make(map[string]float64)}
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

func (d *daemon) wantLimits(want map[string]string) {
	d.t.Helper()
	got := d.limits()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			d.t.Errorf("%s:\n got %q\nwant %q", key, got[key], want[key])
		}
	}
}

// inBothAPIs runs a test in Envoy's API and in the daemon's own. ask reports whether
// a request for a cost passed, which is the same for all its descriptors.
func inBothAPIs(t *testing.T, limits string, test func(t *testing.T, d *daemon, ask func(cost uint32, descriptors ...string) bool)) {
	t.Helper()
	t.Run("Envoy", func(t *testing.T) {
		t.Parallel()
		d := start(t, limits)
		test(t, d, func(cost uint32, descriptors ...string) bool {
			r := request("api", cost, descriptors...)
			if cost == 0 {
				r = charging(t, 0, slices.Repeat([]string{"0"}, len(descriptors)), descriptors...)
			}
			return d.send(r).GetOverallCode().String() == "OK"
		})
	})
	t.Run("Take", func(t *testing.T) {
		t.Parallel()
		d := start(t, limits)
		test(t, d, func(cost uint32, descriptors ...string) bool {
			for i := range descriptors {
				descriptors[i] += fmt.Sprint(":", cost)
			}
			return d.take(descriptors...).GetAllowed()
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
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		for i, want := range []bool{true, true, false} { // the third is one too many a second
			if ask(1, "user=x") != want {
				t.Errorf("request %d passes: %t", i+1, !want)
			}
		}
		d.wantLimits(map[string]string{
			"user|second": "allowed 1 (1) near 1 (1) denied 1 (1)",
			"user|month":  "allowed 2 (2) denied_by_other 1 (1)",
		})
		d.clock.Move(time.Second)
		ask(2, "user=x")
		d.clock.Move(time.Second)
		ask(2, "user=x") // two too many a month
		d.wantLimits(map[string]string{
			"user|second": "allowed 1 (1) near 2 (3) denied 1 (1) denied_by_other 1 (2)",
			"user|month":  "allowed 3 (4) denied 1 (2) denied_by_other 1 (1)",
		})
		d.wantDecisions(map[string]float64{`{domain="api",result="allowed",rule="user"}`: 3, `{domain="api",result="denied",rule="user"}`: 2})
	})
}

func TestCostsAreCountedAsTheyAre(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		for _, cost := range []uint32{60_000, 120_000, 1} {
			ask(cost, "tokens=x")
		}
		d.wantLimits(map[string]string{"tokens|day": "allowed 3 (180001)"})
		ask(4_000_000_000, "tokens=x")
		d.wantLimits(map[string]string{"tokens|day": "allowed 3 (180001) denied 1 (4000000000)"})
	})
}

// A peek is never counted as an admission, neither of its request nor of anything
// that it asks.
func TestPeeksAreNoAdmissions(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		for range 3 {
			if !ask(0, "user=x", "tokens=x") {
				t.Error("a peek is denied")
			}
		}
		d.wantLimits(map[string]string{"user|second": "peeked 3", "user|month": "peeked 3", "tokens|day": "peeked 3"})
		page := d.metrics()
		for _, api := range []string{"grpc", "api_grpc"} {
			if n := page[`ratelimitd_requests_total{api="`+api+`",code="OK",outcome="allowed"}`]; n != 0 {
				t.Errorf("%v peeks are allowed requests of %s", n, api)
			}
		}
		d.wantDecisions(map[string]float64{
			`{domain="api",result="allowed",rule="user"}`: 0, `{domain="api",result="denied",rule="user"}`: 0, `{domain="api",result="peeked",rule="user"}`: 3,
			`{domain="api",result="allowed",rule="tokens"}`: 0, `{domain="api",result="denied",rule="tokens"}`: 0, `{domain="api",result="peeked",rule="tokens"}`: 3,
		})
		ask(2, "user=x")
		if ask(0, "user=x") {
			t.Error("a peek at a full limit passes")
		}
		d.wantLimits(map[string]string{"user|second": "near 1 (2) denied 1 (0) peeked 3", "user|month": "allowed 1 (2) peeked 4"})
	})
}

// A hit is near from the very one on that goes above the ratio.
func TestHitsAboveTheRatioAreNear(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct{ key, limit string }{{"bucket", "token_bucket"}, {"window", "fixed_window"}} {
		inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
			for i := range 10 {
				ask(1, rule.key+"=x")
				want := fmt.Sprintf("allowed %d (%d)", min(i+1, 8), min(i+1, 8))
				if i >= 8 {
					want += fmt.Sprintf(" near %d (%d)", i-7, i-7)
				}
				d.wantLimits(map[string]string{rule.key + "|" + rule.limit: want})
			}
		})
	}
	d := start(t, countedByLimit, func(o *server.Options) { o.Hits = decide.HitCounting{NearRatio: 0.5} })
	d.take("window=x:5")
	d.take("window=x:1")
	d.wantLimits(map[string]string{"window|fixed_window": "allowed 1 (5) near 1 (1)"})
}

// What was used before it was asked for is charged beyond the limit. With postpaid:
// true the charge that goes beyond it is allowed, and those after it are over.
func TestUseBeyondALimitIsOver(t *testing.T) {
	t.Parallel()
	d := start(t, reportLimits)
	for _, hits := range []string{"10", "10", "10"} {
		d.send(charging(t, 0, []string{hits}, "tokens=a"))
		d.send(charging(t, 0, []string{hits}, "paid=a"))
		d.send(charging(t, 0, []string{hits}, "strict=a"))
	}
	d.send(charging(t, 0, []string{"5"}, "paid=a"))
	d.send(charging(t, 0, []string{"0"}, "tokens=a"))
	d.send(charging(t, 0, []string{""}, "tokens=a"))
	d.send(charging(t, 0, []string{"7", ""}, "tokens=b", "closed=a")) // charged though it is denied beside
	d.wantLimits(map[string]string{
		"tokens|fixed_window": "allowed 2 (17) near 1 (10) over 1 (10) denied 2 (1)",
		"paid|fixed_window":   "allowed 1 (10) near 2 (20) over 1 (5)",
		"strict|fixed_window": "allowed 1 (10) near 1 (10) denied 1 (10)",
	})
}

func TestLimitsThatOnlyCountAreShadowed(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		for i := range 4 {
			if ask(1, "tried=x") != (i < 3) {
				t.Errorf("request %d: the candidate has a say", i+1)
			}
			if !ask(1, "rule=x") {
				t.Error("a rule in shadow mode denies")
			}
		}
		d.wantLimits(map[string]string{
			"tried|real":      "allowed 2 (2) near 1 (1) denied 1 (1)",
			"tried|candidate": "near 1 (1) shadowed 3 (3)",
			"rule|n":          "near 1 (1) shadowed 3 (3)",
		})
		d.wantDecisions(map[string]float64{
			`{domain="api",result="allowed",rule="tried"}`: 3, `{domain="api",result="denied",rule="tried"}`: 1,
			`{domain="api",result="allowed",rule="rule"}`: 1, `{domain="api",result="denied",rule="rule"}`: 0, `{domain="api",result="shadowed",rule="rule"}`: 3,
		})
	})
}

// What something else denied is charged to no limit.
func TestWhatAnotherDeniesIsNotCharged(t *testing.T) {
	t.Parallel()
	inBothAPIs(t, countedByLimit, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		for range 3 {
			ask(2, "tokens=x", "closed=x")
		}
		ask(2, "tokens=x")
		d.wantLimits(map[string]string{"tokens|day": "allowed 1 (2) denied_by_other 3 (6)", "closed|token_bucket": "denied 3 (6)"})
		d.wantDecisions(map[string]float64{
			`{domain="api",result="allowed",rule="tokens"}`: 4, `{domain="api",result="denied",rule="tokens"}`: 0,
			`{domain="api",result="allowed",rule="closed"}`: 0, `{domain="api",result="denied",rule="closed"}`: 3,
		})
	})
}

// What comes back is counted for itself, and takes nothing from what was charged.
func TestReturnedCostsAreCountedApart(t *testing.T) {
	t.Parallel()
	d := start(t, countedByLimit)
	taken := d.take("tokens=x:100", "user=x:1")
	if err := d.giveBack(taking("tokens=x:100", "user=x:1"), taken); err != nil {
		t.Fatal(err)
	}
	d.take("tokens=x:50")
	d.send(charging(t, 0, []string{"-20"}, "tokens=x"))
	denied := d.take("tokens=x:7", "closed=x")
	if err := d.giveBack(taking("tokens=x:7", "closed=x"), denied); err != nil { // of nothing
		t.Fatal(err)
	}
	d.wantLimits(map[string]string{
		"tokens|day": "allowed 2 (150) denied_by_other 1 (7) refunded (20) given_back (100)",
		"user|month": "allowed 1 (1) given_back (1)",
	})
	d.wantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="given_back"}`: 2,
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="allowed"}`:    2,
		`ratelimitd_requests_total{api="api_grpc",code="OK",outcome="denied"}`:     1,
	})
}

func TestBlocksAndOwnNumbersAreCountedByTheirRule(t *testing.T) {
	t.Parallel()
	a := startAssigned(t, plannedLimits)
	a.says("user=x", assign.Terms{Blocked: true})
	a.d.take("user=x:2")
	a.d.override(3, "user=y", "4/HOUR")
	a.d.override(3, "user=y", "4/HOUR")
	a.d.override(3, "nothing=y", "4/HOUR") // has no rule
	a.d.take("user=z")
	a.d.wantLimits(map[string]string{
		"user|blocked":  "denied 1 (2)",
		"user|override": "allowed 1 (3) denied 1 (3)",
		"user|n":        "allowed 1 (1)",
	})
}

// The limits of a plan are counted under the plan.
func TestPlansAreCountedByTheirLimits(t *testing.T) {
	t.Parallel()
	a := startAssigned(t, plannedLimits)
	a.says("tenant=pro", assign.Terms{Plan: "pro"})
	a.d.take("tenant=pro")
	a.d.take("tenant=other")
	a.d.wantLimits(map[string]string{
		"tenant (plan pro)|hour": "allowed 1 (1)", "tenant (plan pro)|second": "allowed 1 (1)", "tenant (plan free)|hour": "allowed 1 (1)",
	})
}

// denied returns the subjects, of so many, that a limit of 0 denies which is in force
// for a share.
func denied(t *testing.T, share string, subjects int) map[int]bool {
	t.Helper()
	s := portless(t, "domain: api\ndescriptors: [{key: user, rate_limit: {name: n, requests: 0, period: 1s, enforce: "+share+"}}]\n")
	found := make(map[int]bool)
	for i := range subjects {
		r, err := s.RPC().ShouldRateLimit(t.Context(), request("api", 1, fmt.Sprintf("user=%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if r.GetOverallCode().String() != "OK" {
			found[i] = true
		}
	}
	return found
}

// A limit is rolled out to more and more subjects, the same on every daemon.
func TestEnforcedShareOfSubjects(t *testing.T) {
	t.Parallel()
	const subjects = 2000
	some, again, more := denied(t, "30%", subjects), denied(t, "30%", subjects), denied(t, "60%", subjects)
	// Ten standard deviations of 2,000 draws are 200.
	if n := len(some); n < 400 || n > 800 {
		t.Errorf("30%% of %d are %d", subjects, n)
	}
	if n := len(more); n < 1000 || n > 1400 {
		t.Errorf("60%% of %d are %d", subjects, n)
	}
	if !maps.Equal(some, again) {
		t.Error("after a restart others are denied")
	}
	for subject := range some {
		if !more[subject] {
			t.Errorf("subject %d is denied at 30%% and not at 60%%", subject)
		}
	}
}

// A share that is not enforced is counted as shadowed, and the rest as denied.
func TestEnforcedShareIsCounted(t *testing.T) {
	t.Parallel()
	const limits = "domain: api\ndescriptors: [{key: user, rate_limit: {name: n, requests: 0, period: 1s, enforce: 50%}}]\n"
	inBothAPIs(t, limits, func(t *testing.T, d *daemon, ask func(uint32, ...string) bool) {
		passed := 0
		for i := range 100 {
			if ask(1, fmt.Sprint("user=", i)) {
				passed++
			}
		}
		d.wantLimits(map[string]string{"user|n": fmt.Sprintf("denied %d (%d) shadowed %d (%d)", 100-passed, 100-passed, passed, passed)})
		d.wantDecisions(map[string]float64{
			`{domain="api",result="allowed",rule="user"}`: float64(passed), `{domain="api",result="denied",rule="user"}`: float64(100 - passed),
		})
	})
}

// Callers are told nothing of a limit that only counts for them; the daemon's own API
// marks it.
func TestCallersSeeNothingOfLimitsThatOnlyCount(t *testing.T) {
	t.Parallel()
	const limits = `
domain: api
descriptors:
  - key: both
    rate_limits:
      - {name: real, algorithm: fixed_window, requests: 3, period: 1d}
      - {name: candidate, algorithm: fixed_window, requests: 1, period: 1d, enforce: 0%}
  - {key: alone, rate_limit: {name: candidate, algorithm: fixed_window, requests: 1, period: 1d, enforce: 0%}}
`
	for _, name := range []string{"none", "ratelimit", "x-ratelimit", "ietf"} {
		d := start(t, limits, style(name))
		for i := range 4 {
			answer := d.ask("api", 1, "both=x")
			if text := show(answer) + answer.String(); strings.Contains(text, "candidate") {
				t.Errorf("request %d: the candidate shows in\n%s", i+1, text)
			}
			if ok, remains := answer.GetOverallCode().String() == "OK", answer.GetStatuses()[0].GetLimitRemaining(); ok != (i < 3) || remains != uint32(max(0, 2-i)) {
				t.Errorf("request %d: %s", i+1, show(answer))
			}
			if text := headers(answer); strings.Contains(text, "limit: 1") || strings.Contains(text, "1;w=") {
				t.Errorf("request %d: the candidate shows in the headers\n%s", i+1, text)
			}
			answer = d.ask("api", 1, "alone=x")
			if answer.GetOverallCode().String() != "OK" || strings.Contains(answer.String(), "candidate") || headers(answer) != "" {
				t.Errorf("alone, request %d: %s", i+1, answer)
			}
		}
	}
	d := start(t, limits)
	d.take("both=y")
	r := d.take("both=y")
	if !r.GetAllowed() || len(r.GetLimits()) != 2 {
		t.Fatal(r)
	}
	if first, second := r.GetLimits()[0], r.GetLimits()[1]; !first.GetAllowed() || first.GetShadow() || second.GetAllowed() || !second.GetShadow() {
		t.Errorf("Take says %s", r)
	}
	if r.GetDeniedBy() != 0 || r.GetRetryAfter() != nil {
		t.Errorf("a candidate denies: %s", r)
	}
	p := d.fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"both","value":"y"}]}]}`))
	if p.code != 200 || strings.Contains(fmt.Sprint(p.header), "candidate") {
		t.Errorf("over HTTP: %d %v", p.code, p.header)
	}
}

// A limit that has another name is another limit.
func TestReloadThatRenamesALimitDropsItsSeries(t *testing.T) {
	t.Parallel()
	d := start(t, countedByLimit)
	d.take("user=x")
	d.take("tokens=x")
	d.reload(strings.ReplaceAll(countedByLimit, "name: second", "name: instant"))
	if got := d.limits(); got["user|second"] != "" || got["user|month"] != "allowed 1 (1)" || got["tokens|day"] != "allowed 1 (1)" {
		t.Errorf("after the reload: %v", got)
	}
	d.clock.Move(time.Second)
	d.take("user=x")
	d.wantLimits(map[string]string{"user|second": "", "user|instant": "allowed 1 (1)", "user|month": "allowed 2 (2)"})
}

// A request that began before a reload has limits that the rule no longer has, and one
// that it still has.
func TestRequestInFlightBringsNoSeriesBack(t *testing.T) {
	t.Parallel()
	store := newWaiting() // after whose answers nothing remains
	d := start(t, countedByLimit, on(store))
	answered := make(chan error, 1)
	go func() {
		_, err := d.try(request("api", 1, "user=x"))
		answered <- err
	}()
	within(t, "the store is asked", store.taking)
	d.reload(strings.ReplaceAll(countedByLimit, "name: second", "name: instant"))
	close(store.release)
	if err := within(t, "the answer", answered); err != nil {
		t.Fatal(err)
	}
	got := d.limits()
	if _, shown := got["user|second"]; shown || got["user|month"] != "near 1 (1)" {
		t.Errorf("after the request: %v", got)
	}
	d.ask("api", 1, "user=x")
	d.wantLimits(map[string]string{"user|instant": "near 1 (1)", "user|month": "near 2 (2)"})
}
