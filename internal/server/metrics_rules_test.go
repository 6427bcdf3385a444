package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// withMaxRules has a server show so many rules by themselves, and hits.
func withMaxRules(n int) func(*server.Options) {
	return func(o *server.Options) {
		likeEnvoyproxy(o)
		o.MaxRules = n
	}
}

// Rules beyond the bound are one series, from the first use of each on.
func TestRulesBeyondTheBoundCountAsOther(t *testing.T) {
	t.Parallel()
	limits := func(names string) string {
		text := "domain: api\ndescriptors:\n"
		for _, name := range strings.Fields(names) {
			text += fmt.Sprintf("- {key: %s, value_to_metric: true, rate_limit: {name: n, requests: 2, period: 1h}}\n", name)
		}
		return text
	}
	d := servertest.Start(t, limits("a b c d e"), withMaxRules(2))
	want := func(allowed, denied, hits float64) {
		t.Helper()
		other := func(family, labels string) string { return fmt.Sprintf(`%s{domain="",%s}`, family, labels) }
		d.WantMetrics(map[string]float64{
			other("ratelimitd_decisions_total", `result="allowed",rule="other",value=""`):           allowed,
			other("ratelimitd_decisions_total", `result="denied",rule="other",value=""`):            denied,
			other("ratelimitd_limit_decisions_total", `limit="other",result="denied",rule="other"`): denied,
			other("ratelimitd_limit_cost_total", `limit="other",result="denied",rule="other"`):      denied,
			other("ratelimit_service_rate_limit_total_hits", `key1="other",key2=""`):                hits,
			`ratelimitd_decisions_total{domain="api",result="allowed",rule="d",value="1"}`:          1,
			`ratelimit_service_rate_limit_total_hits{domain="api",key1="d_1",key2=""}`:              1,
			`ratelimitd_limit_decisions_total{domain="api",limit="n",result="allowed",rule="d"}`:    1,
		})
	}
	d.Ask("api", 1, "d=1")
	d.Ask("api", 1, "e=1")
	d.Metrics() // in which d and e get their series
	for range 3 {
		d.Ask("api", 1, "a=1", "b=1")
	}
	want(4, 2, 6)
	// A counter that falls is taken for one that starts again with all that is left.
	d.Reload(limits("b c d e"))
	want(4, 2, 6)
	d.Ask("api", 1, "b=1")
	want(4, 3, 7)
	// The place of a rule that is gone goes to the next that is used first.
	d.Reload(limits("b c d"))
	d.Ask("api", 1, "c=1")
	want(4, 3, 7)
	d.WantMetric(`ratelimitd_decisions_total{domain="api",result="allowed",rule="c",value="1"}`, 1)
}

// A page grows with the bound, not with the rules, and many at a time are as many or refused.
func TestScrapesOfManyRulesStaySmall(t *testing.T) {
	t.Parallel()
	const rules, shown = 20_000, 100
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for i := range rules {
		fmt.Fprintf(&limits, "- {key: user, value: u%d, rate_limit: {requests: 1, period: 1h}}\n", i)
	}
	s := portless(t, limits.String(), withMaxRules(shown))
	for i := range rules {
		if _, err := s.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, fmt.Sprintf("user=u%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 3 {
				w := httptest.NewRecorder()
				s.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if w.Code == http.StatusServiceUnavailable {
					continue
				}
				samples := servertest.Samples(t, w.Body.String())
				maps.DeleteFunc(samples, func(series string, _ float64) bool {
					return !strings.Contains(series, `rule=`) && !strings.Contains(series, `key1=`)
				})
				const perRule = 2 + 3 + 3 + 5 // decisions, what the limit said, its cost, hits
				const numbers = 2             // not of the others
				if got, want := len(samples), (shown+1)*perRule+shown*numbers; got != want {
					t.Errorf("%d series, want %d", got, want)
				}
				if got := samples[`ratelimitd_decisions_total{domain="",result="allowed",rule="other",value=""}`]; got != rules-shown {
					t.Errorf("%v of %d are counted as other", got, rules-shown)
				}
			}
		})
	}
	all.Wait()
}
