package envoyrls_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
`

const hourReset = " reset 59m50s"

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

// All values of a pattern that shares its threshold have one counter of each limit below it.
func TestNestedLimitsShareThePatternAbove(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - key: k
    value: a/*
    share_threshold: true
    descriptors:
      - key: m
        descriptors:
          - {key: n, value: b/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
      - {key: o, rate_limit: {unit: hour, requests_per_unit: 9}}
`)
	for _, c := range []struct {
		descriptor string
		left       int
	}{
		{"k=a/1,o=G", 8},
		{"k=a/2,o=G", 7},
		{"k=a/*,o=G", 6},
		{"k=a/1,o=H", 8},
		{"k=a/1,m=G,n=b/1", 8},
		{"k=a/2,m=G,n=b/2", 7},
		{"k=a/2,m=H,n=b/2", 8},
	} {
		if want := fmt.Sprintf("OK; OK  9/HOUR remaining %d%s", c.left, hourReset); servertest.Show(d.Ask("api", 0, c.descriptor)) != want {
			t.Errorf("%s has not %d left", c.descriptor, c.left)
		}
	}
}
