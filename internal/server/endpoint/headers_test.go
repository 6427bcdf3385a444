package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const headerLimits = `
domain: api
descriptors:
  - {key: minute, rate_limit: {name: m, unit: minute, requests_per_unit: 5}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: day, rate_limit: {name: d, unit: day, requests_per_unit: 5}}
  - {key: bucket, rate_limit: {name: b, requests: 10, period: 1m, burst: 20}}
  - {key: uneven, rate_limit: {name: u, requests: 7, period: 90s, burst: 20}}
  - {key: half, rate_limit: {name: h, requests: 7, period: 500ms, algorithm: fixed_window}}
  - {key: closed, rate_limit: {name: c, unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true, name: f}}
  - key: several
    rate_limits:
      - {name: s, unit: minute, requests_per_unit: 9}
      - {name: l, unit: hour, requests_per_unit: 50}
  - key: tenant
    descriptors:
      - {key: 'ro"ute\ä', rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: odd, rate_limit: {name: "hour-2", unit: hour, requests_per_unit: 5}}
  - {key: quoted, rate_limit: {name: 'a"b\é', unit: hour, requests_per_unit: 5}}
`

// headers returns the headers of a response, one a line.
func headers(r *rlsv3.RateLimitResponse) string {
	var lines []string
	for _, h := range r.GetResponseHeadersToAdd() {
		lines = append(lines, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(lines, "\n")
}

// step is a request and its headers in each style. Each server is asked all
// steps in order.
type step struct {
	name        string
	cost        uint32
	descriptors []string
	rateLimit   string // limit, remaining and reset
	xRateLimit  string // the same
	policy      string
	limit       string
	retry       string
}

var headerSteps = []step{
	{"one limit", 2, []string{"minute=x"}, "5 3 50", "5 3 50", `"m";q=5;w=60`, `"m";r=3;t=50`, ""},
	{"a bucket: its rate, its burst, and when it is full", 2, []string{"bucket=x"},
		"10 18 12", "20 18 12", `"b";q=20;w=120`, `"b";r=18;t=12`, ""},
	{"a window that is not whole seconds", 1, []string{"uneven=x"}, "7 19 13", "20 19 13", `"u";q=20`, `"u";r=19;t=13`, ""},
	{"a window of less than a second", 1, []string{"half=x"}, "7 6 1", "7 6 1", `"h";q=7`, `"h";r=6;t=1`, ""},
	{"without a name, the keys", 1, []string{"hour=x"}, "5 4 3590", "5 4 3590", `"hour";q=5;w=3600`, `"hour";r=4;t=3590`, ""},
	{"keys that a string cannot hold", 1, []string{`tenant=x,ro"ute\ä=y`}, "5 4 3590", "5 4 3590",
		`"tenant/ro\"ute\\?";q=5;w=3600`, `"tenant/ro\"ute\\?";r=4;t=3590`, ""},
	{"a name that a string cannot hold", 1, []string{`quoted=x`}, "5 4 3590", "5 4 3590",
		`"a\"b\\?";q=5;w=3600`, `"a\"b\\?";r=4;t=3590`, ""},
	{"several limits of a rule", 1, []string{"several=x"}, "9 8 50", "9 8 50",
		`"s";q=9;w=60, "l";q=50;w=3600`, `"s";r=8;t=50, "l";r=49;t=3590`, ""},
	{"the fewest remaining", 1, []string{"several=y", "minute=x", "nothing=x", "bucket=y"}, "5 2 50", "5 2 50",
		`"s";q=9;w=60, "l";q=50;w=3600, "m";q=5;w=60, "b";q=20;w=120`, `"s";r=8;t=50, "l";r=49;t=3590, "m";r=2;t=50, "b";r=19;t=6`, ""},
	{"the first of equals", 1, []string{"minute=y", "hour=y", "day=y"}, "5 4 50", "5 4 50",
		`"m";q=5;w=60, "hour";q=5;w=3600, "d";q=5;w=86400`, `"m";r=4;t=50, "hour";r=4;t=3590, "d";r=4;t=86390`, ""},
	{"names that come again", 1, []string{"hour=1", "hour=2", "odd=1", "hour=3"}, "5 4 3590", "5 4 3590",
		`"hour";q=5;w=3600, "hour-2";q=5;w=3600, "hour-2-2";q=5;w=3600, "hour-3";q=5;w=3600`,
		`"hour";r=4;t=3590, "hour-2";r=4;t=3590, "hour-2-2";r=4;t=3590, "hour-3";r=4;t=3590`, ""},
	{"denied", 3, []string{"minute=x"}, "5 2 50", "5 2 50", `"m";q=5;w=60`, `"m";r=2;t=50`, "50"},
	{"a bucket denied: t is when to come back", 19, []string{"bucket=x"},
		"10 18 12", "20 18 12", `"b";q=20;w=120`, `"b";r=18;t=6`, "6"},
	{"over for ever", 6, []string{"day=z", "bucket=z", "bucket=x", "hour=z", "minute=x"}, "5 2 50", "5 2 50",
		`"d";q=5;w=86400, "b";q=20;w=120, "b-2";q=20;w=120, "hour";q=5;w=3600, "m";q=5;w=60`,
		`"d";r=5;t=0, "b";r=20;t=0, "b-2";r=18;t=12, "hour";r=5;t=0, "m";r=2;t=50`, ""},
	{"all of it", 5, []string{"day=v"}, "5 0 86390", "5 0 86390", `"d";q=5;w=86400`, `"d";r=0;t=86390`, ""},
	{"the last one over, and the one over for longest", 3, []string{"day=v", "minute=x", "closed=x"}, "0 0 3590", "0 0 3590",
		`"d";q=5;w=86400, "m";q=5;w=60, "c";q=0;w=3600`, `"d";r=0;t=86390, "m";r=2;t=50, "c";r=0;t=3590`, ""},
	{"the same, without one that never allows", 3, []string{"day=v", "minute=x"}, "5 2 50", "5 0 86390",
		`"d";q=5;w=86400, "m";q=5;w=60`, `"d";r=0;t=86390, "m";r=2;t=50`, "86390"},
	{"over the one, and few left of another", 3, []string{"minute=x", "hour=used"}, "5 2 50", "5 2 50",
		`"m";q=5;w=60, "hour";q=5;w=3600`, `"m";r=2;t=50, "hour";r=5;t=0`, "50"},
	{"always denied", 1, []string{"closed=x"}, "0 0 3590", "0 0 3590", `"c";q=0;w=3600`, `"c";r=0;t=3590`, ""},
	{"unlimited", 1, []string{"free=x"}, "", "", "", "", ""},
	{"unmatched", 1, []string{"nothing=x", ""}, "", "", "", "", ""},
	{"unlimited beside a limit", 1, []string{"free=x", "day=w", "nothing=x"}, "5 4 86390", "5 4 86390", `"d";q=5;w=86400`, `"d";r=4;t=86390`, ""},
}

// names writes the values beside the three names.
func names(values string, names ...string) (lines []string) {
	for i, v := range strings.Fields(values) {
		lines = append(lines, names[i]+": "+v)
	}
	return lines
}

func TestEachStyleHasItsHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		style string
		want  func(s step) []string
	}{
		{"none", func(step) []string { return nil }},
		{"ratelimit", func(s step) []string {
			return names(s.rateLimit, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
		}},
		{"x-ratelimit", func(s step) []string {
			return names(s.xRateLimit, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
		}},
		{"ietf", func(s step) []string {
			if s.policy == "" {
				return nil
			}
			return []string{"RateLimit-Policy: " + s.policy, "RateLimit: " + s.limit}
		}},
	} {
		t.Run(c.style, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, headerLimits, servertest.WithHeaders(c.style))
			for _, s := range headerSteps {
				want := c.want(s)
				if s.retry != "" {
					want = append(want, "retry-after: "+s.retry)
				}
				if got := headers(d.Ask("api", s.cost, s.descriptors...)); got != strings.Join(want, "\n") {
					t.Errorf("%s:\n got %s\nwant %s", s.name, got, strings.Join(want, "\n"))
				}
			}
		})
	}
}

func TestHeadersShowAnOverride(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ style, matched, unmatched string }{
		{"ratelimit", "RateLimit-Limit: 3\nRateLimit-Remaining: 2\nRateLimit-Reset: 80", "RateLimit-Limit: 3\nRateLimit-Remaining: 2\nRateLimit-Reset: 80"},
		{"x-ratelimit", "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 80", "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 80"},
		{"ietf", "RateLimit-Policy: \"minute\";q=3;w=90\nRateLimit: \"minute\";r=2;t=80", "RateLimit-Policy: \"override\";q=3;w=90\nRateLimit: \"override\";r=2;t=80"},
	} {
		t.Run(c.style, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, headerLimits, servertest.WithHeaders(c.style))
			if got := headers(d.Send(servertest.Overriding(t, 1, "minute=x", "3/90xSECOND"))); got != c.matched {
				t.Errorf("with a rule:\n got %s\nwant %s", got, c.matched)
			}
			if got := headers(d.Send(servertest.Overriding(t, 1, "evil\r\n=x", "3/90xSECOND"))); got != c.unmatched {
				t.Errorf("without one:\n got %s\nwant %s", got, c.unmatched)
			}
		})
	}
}

func TestHeadersHaveConfiguredNamesOverHTTP(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, headerLimits, func(o *server.Options) {
		o.Responses.Headers = settings.Headers{Style: "ratelimit", Limit: "X-Max", Remaining: "X-Left", Reset: "X-Soon"}
	})
	body := servertest.ToJSON(t, servertest.Request("api", 4, "minute=x"))
	for i, want := range []struct {
		code int
		left string
	}{{200, "1"}, {429, "1"}} {
		p := d.Post(body)
		if p.Code != want.code || p.Header.Get("X-Max") != "5" || p.Header.Get("X-Left") != want.left || p.Header.Get("X-Soon") != "50" {
			t.Errorf("request %d: %d %v", i, p.Code, p.Header)
		}
	}
	ietf := servertest.Start(t, headerLimits, servertest.WithHeaders("ietf"))
	p := ietf.Post(body)
	if p.Header.Get("RateLimit-Policy") != `"m";q=5;w=60` || p.Header.Get("RateLimit") != `"m";r=1;t=50` {
		t.Errorf("ietf: %d %v", p.Code, p.Header)
	}
}

// TestHeadersListManyPolicies makes values with lengths of more than one and
// two bytes.
func TestHeadersListManyPolicies(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, headerLimits, servertest.WithHeaders("ietf"), func(o *server.Options) {
		o.Requests.Bounds.Descriptors = 2000
		o.Store = &servertest.FakeStore{}
	})
	for _, n := range []int{2, 4, 6, 100, 2000} {
		t.Run(fmt.Sprint(n, " limits"), func(t *testing.T) {
			r := d.Ask("api", 1, servertest.Copies(n, "hour=x")...)
			for _, h := range r.GetResponseHeadersToAdd() {
				items := strings.Split(h.GetValue(), ", ")
				if len(items) != n || !strings.HasPrefix(items[n-1], fmt.Sprintf(`"hour-%d";`, n)) {
					t.Errorf("%s of %d limits ends with %s", h.GetKey(), n, items[len(items)-1])
				}
			}
			if len(r.GetResponseHeadersToAdd()) != 2 {
				t.Errorf("%d headers", len(r.GetResponseHeadersToAdd()))
			}
		})
	}
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
		d := servertest.Start(t, limits, servertest.WithHeaders(name))
		for i := range 4 {
			answer := d.Ask("api", 1, "both=x")
			if text := servertest.Show(answer) + answer.String(); strings.Contains(text, "candidate") {
				t.Errorf("request %d: the candidate shows in\n%s", i+1, text)
			}
			if ok, remains := answer.GetOverallCode().String() == "OK", answer.GetStatuses()[0].GetLimitRemaining(); ok != (i < 3) || remains != uint32(max(0, 2-i)) {
				t.Errorf("request %d: %s", i+1, servertest.Show(answer))
			}
			if text := headers(answer); strings.Contains(text, "limit: 1") || strings.Contains(text, "1;w=") {
				t.Errorf("request %d: the candidate shows in the headers\n%s", i+1, text)
			}
			answer = d.Ask("api", 1, "alone=x")
			if answer.GetOverallCode().String() != "OK" || strings.Contains(answer.String(), "candidate") || headers(answer) != "" {
				t.Errorf("alone, request %d: %s", i+1, answer)
			}
		}
	}
	d := servertest.Start(t, limits)
	d.Take("both=y")
	r := d.Take("both=y")
	if !r.GetAllowed() || len(r.GetLimits()) != 2 {
		t.Fatal(r)
	}
	if first, second := r.GetLimits()[0], r.GetLimits()[1]; !first.GetAllowed() || first.GetShadow() || second.GetAllowed() || !second.GetShadow() {
		t.Errorf("Take says %s", r)
	}
	if r.GetDeniedBy() != 0 || r.GetRetryAfter() != nil {
		t.Errorf("a candidate denies: %s", r)
	}
	p := d.Fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"both","value":"y"}]}]}`))
	if p.Code != 200 || strings.Contains(fmt.Sprint(p.Header), "candidate") {
		t.Errorf("over HTTP: %d %v", p.Code, p.Header)
	}
}
