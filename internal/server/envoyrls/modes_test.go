package envoyrls_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const modeLimits = `
domain: api
descriptors:
  - {key: enforced, rate_limit: {name: e, unit: hour, requests_per_unit: 3}}
  - {key: also, rate_limit: {name: a, unit: hour, requests_per_unit: 1}}
  - {key: shadow, shadow_mode: true, rate_limit: {name: s, unit: hour, requests_per_unit: 2}}
  - {key: quota, quota_mode: true, rate_limit: {name: q, unit: hour, requests_per_unit: 1}}
  - {key: second, quota_mode: true, rate_limit: {name: r, unit: day, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: both
    shadow_mode: true
    rate_limits:
      - {name: few, unit: hour, requests_per_unit: 1}
      - {name: many, algorithm: sliding_log, requests: 5, period: 1d}
  - key: halves
    quota_mode: true
    rate_limits:
      - {name: half, unit: hour, requests_per_unit: 1}
      - {name: other, unit: day, requests_per_unit: 9}
`

// asking is a request and its answer.
type asking struct {
	descriptors []string
	want        string
}

func runAskings(t *testing.T, d *servertest.Daemon, askings []asking) {
	t.Helper()
	for i, a := range askings {
		if got := servertest.Show(d.Ask("api", 0, a.descriptors...)); got != a.want {
			t.Errorf("request %d, %v:\n got %s\nwant %s", i+1, a.descriptors, got, a.want)
		}
	}
}

const hourReset = " reset 59m50s"

// A shadow limit never denies. It is charged when the enforced limits admit,
// and never beyond its number.
func TestShadowLimitNeverDenies(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, modeLimits)
	with := func(overall string, e, s int, code string) string {
		return fmt.Sprintf("%s; OK s 2/HOUR remaining %d%s; %s e 3/HOUR remaining %d%s", overall, s, hourReset, code, e, hourReset)
	}
	pair := []string{"shadow=x", "enforced=x"}
	runAskings(t, d, []asking{
		{pair, with("OK", 2, 1, "OK")},
		{pair, with("OK", 1, 0, "OK")},
		{pair, with("OK", 0, 0, "OK")},
		{pair, with("OVER_LIMIT", 0, 0, "OVER_LIMIT") + "; retry-after: 3590"},
		{[]string{"shadow=x"}, "OK; OK s 2/HOUR remaining 0" + hourReset},
		// Another limit denies, so it is not charged.
		{[]string{"shadow=y", "enforced=x"}, "OVER_LIMIT; OK s 2/HOUR remaining 2 reset 0s; OVER_LIMIT e 3/HOUR remaining 0" + hourReset + "; retry-after: 3590"},
		{[]string{"shadow=y"}, "OK; OK s 2/HOUR remaining 1" + hourReset},
		// Each limit of a list counts by itself.
		{[]string{"both=x"}, "OK; OK few 1/HOUR remaining 0" + hourReset},
		{[]string{"both=x"}, "OK; OK few 1/HOUR remaining 0" + hourReset},
	})
	d.Clock.Move(time.Hour)
	servertest.WantShown(t, d.Ask("api", 4, "both=x"), "OK; OK few 1/HOUR remaining 1 reset 0s")
	servertest.WantShown(t, d.Ask("api", 0, "both=x"), "OK; OK few 1/HOUR remaining 0"+hourReset)

	metrics := d.Get("admin", "/metrics").Body
	for _, want := range []string{
		`ratelimitd_decisions_total{domain="api",result="shadowed",rule="shadow",value=""} 3`,
		`ratelimitd_decisions_total{domain="api",result="denied",rule="shadow",value=""} 0`,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="shadow",value=""} 4`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// A quota that is over says so. It denies only when all quotas are over.
func TestQuotasDenyWhenAllAreOver(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, modeLimits)
	const dayReset = " reset 23h59m50s"
	quota := func(code string) string { return code + " q 1/HOUR remaining 0" + hourReset }
	second := func(code string, n int) string { return fmt.Sprintf("%s r 2/DAY remaining %d%s", code, n, dayReset) }
	runAskings(t, d, []asking{
		{[]string{"quota=x", "second=x"}, "OK; " + quota("OK") + "; " + second("OK", 1)},
		{[]string{"quota=x", "second=x"}, "OK; " + quota("OVER_LIMIT") + "; " + second("OK", 0)},
		// The first quota has room again.
		{[]string{"quota=x", "second=x"}, "OVER_LIMIT; " + quota("OVER_LIMIT") + "; " + second("OVER_LIMIT", 0) + "; retry-after: 3590"},
		// A denied request costs nothing.
		{[]string{"quota=x", "second=x", "enforced=x"}, "OVER_LIMIT; " + quota("OVER_LIMIT") + "; " + second("OVER_LIMIT", 0) + "; OK e 3/HOUR remaining 3 reset 0s; retry-after: 3590"},
		// A single quota denies like an enforced limit.
		{[]string{"quota=x"}, "OVER_LIMIT; " + quota("OVER_LIMIT") + "; retry-after: 3590"},
		{[]string{"quota=x", "unknown=x"}, "OVER_LIMIT; " + quota("OVER_LIMIT") + "; OK remaining 0; retry-after: 3590"},
		{[]string{"quota=y", "enforced=x"}, "OK; " + quota("OK") + "; OK e 3/HOUR remaining 2" + hourReset},
		{[]string{"second=y", "quota=y", "enforced=x"}, "OK; " + second("OK", 1) + "; " + quota("OVER_LIMIT") + "; OK e 3/HOUR remaining 1" + hourReset},
		// Enforced limits deny as always.
		{[]string{"also=x"}, "OK; OK a 1/HOUR remaining 0" + hourReset},
		{[]string{"second=y", "quota=y", "also=x"}, "OVER_LIMIT; " + second("OK", 1) + "; " + quota("OVER_LIMIT") + "; OVER_LIMIT a 1/HOUR remaining 0" + hourReset + "; retry-after: 3590"},
		// A quota of two limits is over when one is.
		{[]string{"halves=x"}, "OK; OK half 1/HOUR remaining 0" + hourReset},
		{[]string{"halves=x", "quota=x"}, "OVER_LIMIT; OVER_LIMIT half 1/HOUR remaining 0" + hourReset + "; " + quota("OVER_LIMIT") + "; retry-after: 3590"},
	})
}

func TestShadowModeForAllDeniesNothing(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, modeLimits, func(o *server.Options) { o.Modes.Shadow = true })
	also := func(code string) string { return code + " a 1/HOUR remaining 0" + hourReset }
	runAskings(t, d, []asking{
		{[]string{"also=x"}, "OK; " + also("OK")},
		{[]string{"also=x"}, "OK; " + also("OVER_LIMIT")},
		// Each limit is charged by itself.
		{[]string{"also=x", "enforced=x"}, "OK; " + also("OVER_LIMIT") + "; OK e 3/HOUR remaining 2" + hourReset},
	})
	d.WantMetrics(map[string]float64{
		`ratelimitd_decisions_total{domain="api",result="shadowed",rule="also",value=""}`:    2,
		`ratelimitd_decisions_total{domain="api",result="denied",rule="also",value=""}`:      0,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="also",value=""}`:     1,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="enforced",value=""}`: 1,
	})
}

func TestQuotaModeForAllDeniesWhenAllAreOver(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, modeLimits, func(o *server.Options) { o.Modes.Quota = true })
	also := func(code string) string { return code + " a 1/HOUR remaining 0" + hourReset }
	runAskings(t, d, []asking{
		{[]string{"also=x"}, "OK; " + also("OK")},
		{[]string{"also=x"}, "OVER_LIMIT; " + also("OVER_LIMIT") + "; retry-after: 3590"},
		{[]string{"also=x", "enforced=x"}, "OK; " + also("OVER_LIMIT") + "; OK e 3/HOUR remaining 2" + hourReset},
		// A descriptor without a rule passes, and so does the request. An unlimited
		// one changes nothing.
		{[]string{"also=x", "unknown=x"}, "OK; " + also("OVER_LIMIT") + "; OK remaining 0"},
		{[]string{"also=x", "free=x"}, "OVER_LIMIT; " + also("OVER_LIMIT") + "; OK remaining 4294967295; retry-after: 3590"},
		{[]string{"unknown=x", "free=x", "also=x"}, "OK; OK remaining 0; OK remaining 4294967295; " + also("OVER_LIMIT")},
		{[]string{"free=x"}, "OK; OK remaining 4294967295"},
	})
	// A descriptor with a limit of its own is a quota too, on the key of its
	// rule.
	r := servertest.Overriding(t, 0, "also=x", "9/HOUR")
	r.Descriptors = append(r.Descriptors, servertest.Request("api", 0, "also=y").Descriptors...)
	servertest.WantShown(t, d.Send(r), "OK; OK  9/HOUR remaining 7"+hourReset+"; "+also("OK"))
}

// A descriptor's own limit may share the key of a quota. It neither weakens
// nor strengthens that quota.
func TestQuotaThatSharesItsKeyStandsAlone(t *testing.T) {
	t.Parallel()
	both := func(own string, descriptors ...string) *rlsv3.RateLimitRequest {
		r := servertest.Overriding(t, 0, descriptors[0], own)
		r.Descriptors = append(r.Descriptors, servertest.Request("api", 0, descriptors[1:]...).Descriptors...)
		return r
	}
	const dayReset = " reset 23h59m50s"
	const over = "OVER_LIMIT q 1/HOUR remaining 0" + hourReset
	d := servertest.Start(t, modeLimits)
	d.Ask("api", 0, "quota=x")
	// An enforced limit counts for the quota: one of two is not over.
	servertest.WantShown(t, d.Send(both("5/DAY", "second=x", "quota=x", "second=x")),
		"OK; OK  5/DAY remaining 0"+dayReset+"; "+over+"; OK r 2/DAY remaining 0"+dayReset)
	servertest.WantShown(t, d.Send(both("5/DAY", "second=x", "quota=x", "second=x")),
		"OVER_LIMIT; OVER_LIMIT  5/DAY remaining 0"+dayReset+"; "+over+"; OVER_LIMIT r 2/DAY remaining 0"+dayReset+"; retry-after: 86390")

	servertest.WantShown(t, d.Send(both("5/DAY", "second=y", "second=y", "quota=x")),
		"OK; OK  5/DAY remaining 0"+dayReset+"; OK r 2/DAY remaining 0"+dayReset+"; "+over)

	// As a quota it has a part of what the other has.
	d = servertest.Start(t, modeLimits, func(o *server.Options) { o.Modes.Quota = true })
	d.Ask("api", 0, "halves=x")
	servertest.WantShown(t, d.Send(both("9/HOUR", "halves=x", "halves=x")),
		"OVER_LIMIT; OVER_LIMIT  9/HOUR remaining 0"+hourReset+"; OVER_LIMIT half 1/HOUR remaining 0"+hourReset)
	servertest.WantShown(t, d.Send(both("9/DAY", "halves=x", "halves=x")),
		"OK; OK  9/DAY remaining 6"+dayReset+"; OVER_LIMIT half 1/HOUR remaining 0"+hourReset)
}

const replacingLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {name: general, unit: hour, requests_per_unit: 1}}
  - {key: vip, rate_limit: {name: vip, unit: hour, requests_per_unit: 9, replaces: [{name: general}]}}
  - {key: a, rate_limit: {name: a, unit: hour, requests_per_unit: 1, replaces: [{name: b}]}}
  - {key: b, rate_limit: {name: b, unit: hour, requests_per_unit: 1, replaces: [{name: a}]}}
  - {key: free, rate_limit: {name: free, unlimited: true, replaces: [{name: general}]}}
  - {key: against, rate_limit: {name: against, unit: hour, requests_per_unit: 5, replaces: [{name: free}]}}
  - key: list
    rate_limits:
      - {name: general, unit: hour, requests_per_unit: 1}
      - {name: daily, unit: day, requests_per_unit: 4}
`

func TestReplacedLimitIsNotCharged(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, replacingLimits)
	general := func(code string) string { return code + " general 1/HOUR remaining 0" + hourReset }
	vip := func(n int) string { return fmt.Sprintf("OK vip 9/HOUR remaining %d%s", n, hourReset) }
	runAskings(t, d, []asking{
		{[]string{"user=x", "vip=x"}, "OK; OK remaining 0; " + vip(8)},
		{[]string{"vip=x", "user=x"}, "OK; " + vip(7) + "; OK remaining 0"},
		// The replaced limit was not charged.
		{[]string{"user=x"}, "OK; " + general("OK")},
		{[]string{"user=x"}, "OVER_LIMIT; " + general("OVER_LIMIT") + "; retry-after: 3590"},
		{[]string{"user=x", "free=x"}, "OK; OK remaining 0; OK remaining 4294967295"},
		// An unlimited rule is not replaced.
		{[]string{"against=x", "free=x", "user=x"}, "OK; OK against 5/HOUR remaining 4" + hourReset + "; OK remaining 4294967295; OK remaining 0"},
		{[]string{"a=x", "b=x"}, "OK; OK remaining 0; OK remaining 0"},
		{[]string{"a=x"}, "OK; OK a 1/HOUR remaining 0" + hourReset},
		// One limit of two is replaced.
		{[]string{"list=x", "vip=x"}, "OK; OK daily 4/DAY remaining 3 reset 23h59m50s; " + vip(6)},
		{[]string{"list=x", "vip=x"}, "OK; OK daily 4/DAY remaining 2 reset 23h59m50s; " + vip(5)},
		{[]string{"list=x"}, "OK; OK general 1/HOUR remaining 0" + hourReset},
	})
	// Where all limits are quotas, a replaced one passes.
	all := servertest.Start(t, replacingLimits, func(o *server.Options) { o.Modes.Quota = true })
	runAskings(t, all, []asking{
		{[]string{"a=x"}, "OK; OK a 1/HOUR remaining 0" + hourReset},
		{[]string{"a=x"}, "OVER_LIMIT; OVER_LIMIT a 1/HOUR remaining 0" + hourReset + "; retry-after: 3590"},
		{[]string{"a=x", "user=x", "free=x"}, "OK; OVER_LIMIT a 1/HOUR remaining 0" + hourReset + "; OK remaining 0; OK remaining 4294967295"},
	})
	// A limit of the descriptor replaces nothing and is not replaced.
	r := servertest.Overriding(t, 0, "vip=x", "9/HOUR")
	r.Descriptors = append(r.Descriptors, servertest.Request("api", 0, "user=y").Descriptors...)
	servertest.WantShown(t, d.Send(r), "OK; OK  9/HOUR remaining 4"+hourReset+"; "+general("OK"))
	r = servertest.Overriding(t, 0, "user=z", "9/HOUR")
	r.Descriptors = append(r.Descriptors, servertest.Request("api", 0, "vip=x").Descriptors...)
	servertest.WantShown(t, d.Send(r), "OK; OK  9/HOUR remaining 8"+hourReset+"; "+vip(3))
}

// Each of many descriptors replaces the limits that it names, and no others.
func TestEachDescriptorReplacesWhatItNames(t *testing.T) {
	t.Parallel()
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for i := range 20 {
		fmt.Fprintf(&limits, "- {key: k%d, rate_limit: {name: n%d, unit: hour, requests_per_unit: 9, replaces: [{name: n%d}, {name: x}]}}\n", i, i, i+1)
	}
	d := servertest.Start(t, limits.String())
	var descriptors []string
	want := "OK"
	for i := range 40 {
		descriptors = append(descriptors, fmt.Sprintf("k%d=%d", i*2%20, i), "k19=x")
		want += fmt.Sprintf("; OK n%d 9/HOUR remaining 8%s", i*2%20, hourReset)
		want += "; OK remaining 0"
	}
	runAskings(t, d, []asking{{descriptors, want}})
}

const sharedLimits = `
domain: api
descriptors:
  - {key: path, value: /a/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: path, value: /b/*, rate_limit: {unit: hour, requests_per_unit: 9}}
  - key: user
    descriptors:
      - {key: path, value: "*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`

// All values of a shared pattern have one counter, and no client can ask for
// that counter in another way.
func TestValuesOfASharedPatternHaveOneCounter(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, sharedLimits)
	left := func(n int) string { return fmt.Sprintf("OK; OK  9/HOUR remaining %d%s", n, hourReset) }
	runAskings(t, d, []asking{
		{[]string{"path=/a/1"}, left(8)},
		{[]string{"path=/a/2"}, left(7)},
		{[]string{"path=/a/*"}, left(6)},
		{[]string{"path=/a/"}, left(5)},
		{[]string{"path=/b/1"}, left(8)},
		{[]string{"path=/b/2"}, left(8)},
		{[]string{"path=/b/*"}, left(8)},
		{[]string{"user=x,path=/1"}, left(8)},
		{[]string{"user=x,path="}, left(7)},
		{[]string{"user=y,path=/1"}, left(8)},
		{[]string{"path=/a/1", "path=/a/2"}, "OK; OK  9/HOUR remaining 3" + hourReset + "; OK  9/HOUR remaining 3" + hourReset},
	})
	r := servertest.Overriding(t, 0, "path=/a/1", "9/HOUR")
	servertest.WantShown(t, d.Send(r), "OK; OK  9/HOUR remaining 8"+hourReset) // a counter of its own
}

// Values that share a counter are still counted apart by value.
func TestShareThresholdCountsByValue(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - {key: path, value: /a/*, share_threshold: true, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`)
	d.Ask("api", 0, "path=/a/1", "path=/a/2")
	d.WantMetrics(map[string]float64{
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="path=/a/*",value="/a/1"}`: 1,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="path=/a/*",value="/a/2"}`: 1,
	})
}

// A store that spreads keys sees one key in one place.
func TestShareThresholdHasOnePlace(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	store := &servertest.FakeStore{OnTake: func(_ context.Context, hits []bucket.Hit, _ []bucket.Decision) error {
		for _, h := range hits {
			seen[string(h.Place)] = string(h.Key)
		}
		return nil
	}}
	d := servertest.Start(t, `
domain: api
hash_tag: path
descriptors:
  - {key: path, value: /a/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
`, func(o *server.Options) { o.Store = store })
	for i := range 5 {
		d.Ask("api", 0, fmt.Sprint("path=/a/", i))
	}
	if len(seen) != 1 {
		t.Errorf("the places and keys are %v, want one", seen)
	}
}

const toldLimits = `
domain: api
descriptors:
  - key: tenant
    metadata: {tier: gold, price: {unit: eur, amount: 1.5}, tags: [a, 1, true, null], none: null}
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: user
    metadata: {tier: silver, price: {amount: 2, per: hit}, seat: 7}
    rate_limit: {name: user, unit: hour, requests_per_unit: 1}
  - {key: shadow, shadow_mode: true, metadata: {seen: true}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, metadata: {tier: free}, rate_limit: {unlimited: true}}
  - {key: instead, rate_limit: {unlimited: true, replaces: [{name: user}]}}
`

func TestAnswerHasTheMetadataOfItsRules(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, toldLimits, withMetadata)
	const (
		tenant = `{"tier":"gold","price":{"unit":"eur","amount":1.5},"tags":["a",1,true,null],"none":null}`
		user   = `{"tier":"silver","price":{"amount":2,"per":"hit"},"seat":7}`
	)
	for _, c := range []struct {
		descriptors []string
		want        string // null: none
	}{
		{[]string{"tenant=x"}, tenant},
		{[]string{"tenant=x", "user=x"}, `{"tier":"gold","price":{"unit":"eur","amount":1.5,"per":"hit"},"tags":["a",1,true,null],"none":null,"seat":7}`},
		{[]string{"user=y", "tenant=y"}, `{"tier":"silver","price":{"unit":"eur","amount":2,"per":"hit"},"tags":["a",1,true,null],"none":null,"seat":7}`},
		// The merge has not changed the rules.
		{[]string{"user=z"}, user},
		// Over its limit: the user's is not told.
		{[]string{"user=z"}, `null`},
		{[]string{"tenant=z", "user=z"}, tenant},
		{[]string{"shadow=x"}, `{"seen":true}`},
		{[]string{"shadow=x"}, `{"seen":true}`},
		{[]string{"free=x", "user=w"}, `{"tier":"free","price":{"amount":2,"per":"hit"},"seat":7}`},
		{[]string{"instead=x", "user=v"}, `null`},
		{[]string{"unknown=x"}, `null`},
	} {
		got := d.Ask("api", 0, c.descriptors...).GetDynamicMetadata().GetFields()["metadata"]
		want := new(structpb.Value)
		if err := protojson.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(err)
		}
		if got == nil {
			got = structpb.NewNullValue()
		}
		if !proto.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", c.descriptors, got, want)
		}
	}
	// A descriptor's own limit has no metadata of a rule.
	if m := d.Send(servertest.Overriding(t, 0, "tenant=x", "9/HOUR")).GetDynamicMetadata().GetFields()["metadata"]; m != nil {
		t.Errorf("beside an override the rule's metadata is told: %v", m)
	}
}

// Headers hide shadow limits from callers, except in the style of envoyproxy/ratelimit,
// which repeats the statuses. A quota that is over does not take precedence over a
// limit with fewer remaining.
func TestHeadersDoNotShowShadowLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		style       settings.HeaderStyle
		descriptors []string
		want        string
	}{
		{"x-ratelimit", []string{"shadow=x", "enforced=x"}, "X-RateLimit-Limit: 3; X-RateLimit-Remaining: 2; X-RateLimit-Reset: 3590"},
		{"x-ratelimit", []string{"shadow=x"}, ""},
		{"ietf", []string{"shadow=x", "enforced=x"}, `RateLimit-Policy: "e";q=3;w=3600; RateLimit: "e";r=2;t=3590`},
		{"ietf", []string{"shadow=x"}, ""},
		{"ratelimit", []string{"shadow=x", "enforced=x"}, "RateLimit-Limit: 2; RateLimit-Remaining: 0; RateLimit-Reset: 3590"},
		// The quota of 1 is over, and the other has no fewer left.
		{"ratelimit", []string{"second=x", "quota=x"}, "RateLimit-Limit: 2; RateLimit-Remaining: 0; RateLimit-Reset: 86390"},
		{"ratelimit", []string{"also=x", "shadow=x"}, "RateLimit-Limit: 1; RateLimit-Remaining: 0; RateLimit-Reset: 3590"},
		{"ratelimit", []string{"second=x", "quota=x", "also=x"}, "RateLimit-Limit: 1; RateLimit-Remaining: 0; RateLimit-Reset: 3590"},
	} {
		t.Run(string(c.style)+" "+strings.Join(c.descriptors, " "), func(t *testing.T) {
			d := servertest.Start(t, modeLimits, func(o *server.Options) {
				o.Responses.Headers = settings.Headers{Style: c.style, Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
			})
			d.Ask("api", 0, "shadow=x")
			d.Ask("api", 0, "shadow=x")
			d.Ask("api", 0, "quota=x")
			d.Ask("api", 0, "second=x")
			if slices.Contains(c.descriptors, "also=x") {
				d.Ask("api", 0, "also=x")
			}
			var got []string
			for _, h := range d.Ask("api", 0, c.descriptors...).GetResponseHeadersToAdd() {
				if h.GetKey() != "retry-after" {
					got = append(got, h.GetKey()+": "+h.GetValue())
				}
			}
			if got := strings.Join(got, "; "); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
