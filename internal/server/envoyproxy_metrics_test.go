package server_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// likeEnvoyproxy has a server show metrics by the names of envoyproxy/ratelimit.
func likeEnvoyproxy(o *server.Options) {
	o.Hits = decide.HitCounting{On: true, NearRatio: 0.8}
}

// hitsOf returns the five metrics of hits by their labels, in a form that a table can
// hold: "total 5 within 4 over 1 near 2 shadow 0". Labels are "api|user|plan".
func hitsOf(d *servertest.Daemon) map[string]string {
	d.T.Helper()
	return hitsIn(d.T, d.Metrics())
}

func hitsIn(t testing.TB, samples map[string]float64) map[string]string {
	t.Helper()
	values := make(map[string]map[string]float64)
	for series, value := range samples {
		name, labels, _ := strings.Cut(series, "{")
		part, ok := strings.CutPrefix(name, "ratelimit_service_rate_limit_")
		if !ok {
			continue
		}
		labels = strings.NewReplacer(`domain="`, "", `",key1="`, "|", `",key2="`, "|", `"}`, "").Replace(labels)
		labels = strings.TrimSuffix(labels, "|")
		if values[labels] == nil {
			values[labels] = make(map[string]float64)
		}
		values[labels][part] = value
	}
	shown := make(map[string]string)
	for labels, v := range values {
		shown[labels] = fmt.Sprintf("total %v within %v over %v near %v shadow %v",
			v["total_hits"], v["within_limit"], v["over_limit"], v["near_limit"], v["shadow_mode"])
		if len(v) != 5 {
			t.Errorf("%s: %v", labels, v)
		}
	}
	return shown
}

func wantHits(d *servertest.Daemon, want map[string]string) {
	d.T.Helper()
	if got := hitsOf(d); !maps.Equal(got, want) {
		d.T.Errorf("hits:\n got %v\nwant %v", got, want)
	}
}

// reports asks with the descriptors' own hits_addend.
func reports(hits uint64, descriptors ...string) *rlsv3.RateLimitRequest {
	r := servertest.Request("api", 0, descriptors...)
	for _, d := range r.GetDescriptors() {
		d.HitsAddend = wrapperspb.UInt64(hits)
	}
	return r
}

func TestMetricsOfEnvoyproxyAreOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	d.Ask("api", 1, "user=x")
	for series := range d.Metrics() {
		if strings.HasPrefix(series, "ratelimit_") {
			t.Errorf("%s is shown", series)
		}
	}
}

func TestHitsAreCountedInTheirParts(t *testing.T) {
	t.Parallel()
	asks := func(cost uint32, descriptors ...string) *rlsv3.RateLimitRequest {
		return servertest.Request("api", cost, descriptors...)
	}
	refund := asks(2, "user=x")
	refund.Descriptors[0].IsNegativeHits = true
	times := func(n int, r *rlsv3.RateLimitRequest) []*rlsv3.RateLimitRequest {
		return slices.Repeat([]*rlsv3.RateLimitRequest{r}, n)
	}
	const limits = `
domain: api
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: three, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 21}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: old, rate_limit: {unit: hour, requests_per_unit: 5, name: old}}
  - {key: new, rate_limit: {unit: hour, requests_per_unit: 5, name: new, replaces: [{name: old}]}}
  - {key: bucket, rate_limit: {requests: 10, period: 1h, burst: 5}}
  - key: two
    rate_limits: [{name: a, requests: 10, period: 1h}, {name: b, requests: 2, period: 1h}]
`
	for _, c := range []struct {
		name string
		asks []*rlsv3.RateLimitRequest
		want map[string]string
	}{
		{"the third hit of three is near, the next ones are over", times(5, asks(1, "three=x")),
			map[string]string{"api|three": "total 5 within 3 over 2 near 1 shadow 0"}},
		{"within and near at once", times(1, asks(9, "user=x")),
			map[string]string{"api|user": "total 9 within 9 over 0 near 1 shadow 0"}},
		{"all near", slices.Concat(times(1, asks(8, "user=x")), times(2, asks(1, "user=x"))),
			map[string]string{"api|user": "total 10 within 10 over 0 near 2 shadow 0"}},
		{"the part over of a denial, which takes nothing", slices.Concat(times(1, asks(8, "user=x")), times(2, asks(5, "user=x"))),
			map[string]string{"api|user": "total 18 within 8 over 6 near 0 shadow 0"}},
		{"a cost above the limit", times(1, asks(14, "user=x")),
			map[string]string{"api|user": "total 14 within 0 over 4 near 0 shadow 0"}},
		{"within a limit beside a denial", times(2, asks(1, "user=x", "none=x")),
			map[string]string{"api|user": "total 2 within 2 over 0 near 0 shadow 0", "api|none": "total 2 within 0 over 2 near 0 shadow 0"}},
		{"charges of what was used, one of them across the limit", times(4, reports(10, "tokens=x")),
			map[string]string{"api|tokens": "total 40 within 20 over 19 near 5 shadow 0"}},
		{"charges of what was used, from below what is near to beyond the limit", times(1, reports(30, "tokens=x")),
			map[string]string{"api|tokens": "total 30 within 0 over 9 near 5 shadow 0"}},
		{"shadow mode", times(3, asks(1, "trial=x")),
			map[string]string{"api|trial": "total 3 within 1 over 2 near 1 shadow 2"}},
		{"shadow mode counts all hits, also those that fit", times(1, asks(3, "trial=x")),
			map[string]string{"api|trial": "total 3 within 0 over 2 near 0 shadow 3"}},
		{"no limit", times(1, asks(1, "free=x", "unknown=x")), map[string]string{}},
		{"a limit that is replaced", times(1, asks(1, "old=x", "new=x")),
			map[string]string{"api|new": "total 1 within 1 over 0 near 0 shadow 0"}},
		{"peeks and refunds", slices.Concat(times(1, reports(0, "user=x")), times(1, refund)), map[string]string{}},
		{"a bucket by its burst", times(6, asks(1, "bucket=x")),
			map[string]string{"api|bucket": "total 6 within 5 over 1 near 1 shadow 0"}},
		{"the limit that speaks, of several", times(3, asks(1, "two=x")),
			map[string]string{"api|two": "total 3 within 2 over 1 near 1 shadow 0"}},
		{"a limit of its own", times(3, servertest.Overriding(t, 1, "user=x", "2/HOUR")),
			map[string]string{"api|user": "total 3 within 2 over 1 near 1 shadow 0"}},
		{"a limit of its own without a rule", times(1, servertest.Overriding(t, 1, "unknown=x", "2/HOUR")), map[string]string{}},
		{"costs beyond what any limit has", times(2, reports(1<<62, "none=x")),
			map[string]string{"api|none": "total 9.007199254740992e+15 within 0 over 9.007199254740992e+15 near 0 shadow 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := servertest.Start(t, limits, likeEnvoyproxy)
			for _, r := range c.asks {
				d.Send(r)
			}
			wantHits(d, c.want)
		})
	}
}

func TestLabelsAreSpeltAsInEnvoyproxy(t *testing.T) {
	t.Parallel()
	limit := "rate_limit: {unit: hour, requests_per_unit: 9}"
	for _, c := range []struct {
		name, domain, descriptors string
		ask                       string // descriptors, by spaces
		want                      []string
	}{
		{"a key", "api", "[{key: user, " + limit + "}]", "user=x", []string{"api|user"}},
		{"a value of the file", "api", "[{key: user, value: a, " + limit + "}]", "user=a", []string{"api|user_a"}},
		{"a pattern", "api", "[{key: path, value: /a/*, " + limit + "}]", "path=/a/b", []string{"api|path_/a/*"}},
		{"two levels", "default/eg/http", "[{key: r, value: r, descriptors: [{key: rule-0-match-0, value: rule-0-match-0, " + limit + "}]}]",
			"r=r,rule-0-match-0=rule-0-match-0", []string{"default/eg/http|r_r|rule-0-match-0_rule-0-match-0"}},
		{"deeper levels are joined", "api", "[{key: a, descriptors: [{key: b, value: x, descriptors: [{key: c, " + limit + "}, {key: d, value: y, " + limit + "}]}]}]",
			"a=1,b=x,c=2 a=1,b=x,d=y", []string{"api|a|b_x.c", "api|a|b_x.d_y"}},
		{"addresses", "10.0.0.1", "[{key: a, value: '0.0.0.0/0', " + limit + "}, {key: a, value: 'invert:192.0.2.0/24', " + limit + "}, {key: a, value: '2001:db8::/32', " + limit + "}]",
			"a=0.0.0.0/0 a=invert:192.0.2.0/24 a=2001:db8::/32", []string{"10_0_0_1|a_0_0_0_0/0", "10_0_0_1|a_2001_db8__/32", "10_0_0_1|a_invert_192_0_2_0/24"}},
		{"other dots stay", "a.example.com", "[{key: a.b, value: 'c:d|e', " + limit + "}, {key: v, value: 1.2.3.4.5, " + limit + "}, {key: v, value: 1.2.3.4567, " + limit + "}, {key: v, value: '..1.2.3', " + limit + "}, {key: v, value: x1.2.3.4y, " + limit + "}]",
			"a.b=c:d|e v=1.2.3.4.5 v=1.2.3.4567 v=..1.2.3 v=x1.2.3.4y",
			[]string{"a.example.com|a.b_c_d_e", "a.example.com|v_..1.2.3", "a.example.com|v_1.2.3.4.5", "a.example.com|v_1.2.3.4567", "a.example.com|v_x1_2_3_4y"}},
		{"value_to_metric has the value of the last", "api", "[{key: a, descriptors: [{key: b, value: '*', value_to_metric: true, " + limit + "}]}]",
			"a=1,b=2 a=1,b=10.0.0.1 a=1,b=", []string{"api|a|b_*", "api|a|b_10_0_0_1", "api|a|b_2"}},
		{"detailed_metric has all values, and wins", "api", "[{key: a, descriptors: [{key: b, value_to_metric: true, detailed_metric: true, " + limit + "}]}]",
			"a=1,b=2 a=1,b=", []string{"api|a_1|b", "api|a_1|b_2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := servertest.Start(t, "domain: "+c.domain+"\ndescriptors: "+c.descriptors+"\n", likeEnvoyproxy)
			for _, descriptor := range strings.Fields(c.ask) {
				d.Ask(c.domain, 1, descriptor)
			}
			if got := slices.Sorted(maps.Keys(hitsOf(d))); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// peerCounter counts hits as envoyproxy/ratelimit does, on a counter that every
// request is charged to.
type peerCounter struct {
	count, limit              int64
	total, within, over, near int64
}

func (c *peerCounter) charge(hits int64) {
	before, after := c.count, c.count+hits
	c.count = after
	c.total += hits
	nearFrom := int64(float32(c.limit) * float32(0.8)) // of no negative number
	switch {
	case after <= c.limit:
		c.within += hits
		c.near += max(0, after-max(before, nearFrom))
	case before >= c.limit:
		c.over += hits
	default:
		c.over += after - c.limit
		c.near += c.limit - max(before, nearFrom)
	}
}

// What a descriptor reports is charged in full on both sides, and single hits
// differ in nothing that is counted.
func TestHitsAreThoseOfEnvoyproxy(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		limit, single := random.Int64N(60), random.IntN(2) == 0
		t.Run(fmt.Sprintf("limit %d, single %t", limit, single), func(t *testing.T) {
			s := portless(t, fmt.Sprintf("domain: api\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: %d}}]\n", limit), likeEnvoyproxy)
			c := peerCounter{limit: limit}
			for range 1 + random.IntN(100) {
				hits, asked := int64(1), servertest.Request("api", 1, "user=x")
				if !single {
					hits = random.Int64N(12)
					asked = reports(uint64(hits), "user=x")
				}
				if _, err := s.RPC().ShouldRateLimit(t.Context(), asked); err != nil {
					t.Fatal(err)
				}
				c.charge(hits)
			}
			want := map[string]string{}
			if c.total > 0 {
				want["api|user"] = fmt.Sprintf("total %d within %d over %d near %d shadow 0", c.total, c.within, c.over, c.near)
			}
			w := httptest.NewRecorder()
			s.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if got := hitsIn(t, servertest.Samples(t, w.Body.String())); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// Two series of the same labels would fail the whole page, and a sum that falls is taken for
// a counter that starts again, with all that is left as an increase.
func TestRulesThatAreSpeltAlikeAreOneSeriesThatNeverFalls(t *testing.T) {
	t.Parallel()
	limits := func(rules ...string) string {
		text := "domain: api\ndescriptors:\n- {key: other, rate_limit: {unit: hour, requests_per_unit: 9}}\n"
		for _, r := range rules {
			text += "- {" + r + ", rate_limit: {unit: hour, requests_per_unit: 9}}\n"
		}
		return text
	}
	const colon, bar, key, byValue = `key: a, value: "b:c"`, `key: a, value: "b|c"`, "key: a_b, value: c", "key: a, value_to_metric: true"
	d := servertest.Start(t, limits(colon, bar, key, byValue), likeEnvoyproxy)
	for _, step := range []struct {
		reload []string // nil for none
		asks   string
		want   int // 0 for no series
	}{
		{nil, "a=b:c a=b|c a_b=c a_b=c a=b_c", 5},
		{[]string{bar, key, byValue}, "", 5},
		{nil, "a_b=c", 6},
		{[]string{key}, "a_b=c", 7},
		{[]string{}, "", 0},
		{[]string{key, colon}, "a_b=c", 1},
	} {
		if step.reload != nil {
			d.Reload(limits(step.reload...))
			d.Metrics()
		}
		for _, descriptor := range strings.Fields(step.asks) {
			d.Ask("api", 1, descriptor)
		}
		want := map[string]string{"api|a_b_c": fmt.Sprintf("total %d within %[1]d over 0 near 0 shadow 0", step.want)}
		if step.want == 0 {
			want = map[string]string{}
		}
		wantHits(d, want)
	}
}

func TestHitsGoOnOverAReload(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, "domain: api\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}, {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]\n", likeEnvoyproxy)
	d.Ask("api", 1, "a=x", "b=x")
	d.Reload("domain: api\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 2}}]\n")
	d.Ask("api", 1, "a=x")
	wantHits(d, map[string]string{"api|a": "total 2 within 2 over 0 near 2 shadow 0"})
	d.Write("domain: [\n")
	if d.Live.Reload() == nil {
		t.Error("a file that is none is loaded")
	}
	d.WantMetrics(map[string]float64{"ratelimit_service_config_load_success": 2, "ratelimit_service_config_load_error": 1})
}

// A caller that chooses its values adds no more series than rules have values.
func TestCallersCannotGrowTheSeries(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: value, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: all, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`, likeEnvoyproxy)
	const asked = 2*tally.MaxRuleValues + 50
	for i := range asked {
		d.Ask("api", 1, fmt.Sprintf("plain=%d", i), fmt.Sprintf("value=%d", i), fmt.Sprintf("all=%d", i), fmt.Sprintf("none%d=x", i))
	}
	d.Ask("api", 1, "all="+strings.Repeat("x", 1000))
	hits := hitsOf(d)
	if want := 1 + 2*(tally.MaxRuleValues+1); len(hits) != want {
		t.Errorf("%d series, want %d", len(hits), want)
	}
	rest := fmt.Sprintf("total %d within %[1]d over 0 near 0 shadow 0", asked-tally.MaxRuleValues)
	restAll := fmt.Sprintf("total %d within %[1]d over 0 near 0 shadow 0", asked-tally.MaxRuleValues+1)
	if hits["api|value|other"] != rest || hits["api|all|other"] != restAll {
		t.Errorf("others: %q and %q, want %q and %q", hits["api|value|other"], hits["api|all|other"], rest, restAll)
	}
}

// The store answers all requests without their state.
func TestDegradedAnswersCountNoHitsAsNear(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, likeEnvoyproxy, servertest.On(&servertest.FakeStore{OnTake: func(_ context.Context, _ []bucket.Hit, decisions []bucket.Decision) error {
		decisions[0] = bucket.Decision{Remaining: 1, Degraded: true}
		return nil
	}}))
	d.Ask("api", 1, "user=x")
	wantHits(d, map[string]string{"api|user": "total 1 within 1 over 0 near 0 shadow 0"})
}

func TestAnswersAreCountedAndTimedByMethod(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, likeEnvoyproxy)
	before := d.Metrics()[`ratelimit_service_total_requests{grpc_method="Check"}`]
	d.Check("")
	d.Ask("api", 1, "user=x")
	d.Ask("api", 9, "user=x")
	_, _ = d.Try(servertest.Request("", 1, "user=x"))
	d.Post(servertest.BodyX) // is not gRPC
	d.WantMetrics(map[string]float64{
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}`:                         3,
		`ratelimit_service_total_requests{grpc_method="Check"}`:                                   before + 1,
		`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}`:            3,
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="+Inf"}`: 3,
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"}`:                       0,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"}`:                     1,
		`ratelimit_service_config_load_success`:                                                   1,
		`ratelimit_service_config_load_error`:                                                     0,
	})
	page := d.Metrics()
	for _, le := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10"} {
		if _, ok := page[fmt.Sprintf(`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le=%q}`, le)]; !ok {
			t.Errorf("no bucket up to %s s", le)
		}
	}
	// In true seconds: a call is neither nothing nor as long as all of the test.
	if sum := page[`ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"}`]; sum <= 0 || sum > servertest.Patience.Seconds() {
		t.Errorf("answers took %v s", sum)
	}
}

func TestErrorsAreCountedByTheirCause(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, likeEnvoyproxy, servertest.On(servertest.Failing("gone")))
	_, _ = d.Try(servertest.Request("api", 1, "user=x"))
	d.Post(servertest.BodyX)
	_, _ = d.Try(servertest.Request("", 1, "user=x"))
	d.Post(`{"domain":""}`)
	d.Post("no request")
	d.Fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`)) // another API
	d.WantMetrics(map[string]float64{
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"}`:   2,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"}`: 2,
	})
}

func TestCallersThatLeaveAreNoErrorOfRedis(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	d := servertest.Start(t, servertest.OneLimit, likeEnvoyproxy, servertest.On(&servertest.FakeStore{OnTake: func(ctx context.Context, _ []bucket.Hit, _ []bucket.Decision) error {
		close(asked)
		<-ctx.Done()
		return ctx.Err()
	}}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-asked
		leave()
	}()
	if _, err := d.RLS.ShouldRateLimit(ctx, servertest.Request("api", 1, "user=x")); err == nil {
		t.Error("a call that was left is answered")
	}
	asynctest.Eventually(t, "the call is over", func() bool {
		return d.Metrics()[`ratelimitd_requests_total{api="grpc",code="Canceled",outcome="error"}`] == 1
	})
	d.WantMetric(`ratelimit_service_should_rate_limit_error{err_type="redis_error"}`, 0)
}
