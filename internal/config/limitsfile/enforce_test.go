package limitsfile_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

func TestEnforceIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"enforce: 10%": 9000, "enforce: 0%": 10_000, "enforce: 100%": 0, "enforce: 0.01%": 9999, "enforce: 12.5%": 8750, `enforce: "99.99%"`: 1,
		"shadow_mode: true": 10_000, "shadow_mode: false": 0, "shadow_mode: false, enforce: 1%": 9900,
	} {
		domain := limitstest.Domain(t, "domain: d\ndescriptors:\n  - {key: k, rate_limits: [{name: n, requests: 1, period: 1m, "+text+"}]}\n")
		if got := domain.Rules()[0].Limits[0].Unenforced; got != want {
			t.Errorf("%s: %d of 10,000 unenforced, want %d", text, got, want)
		}
	}
}

func TestBadEnforceIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10", "101%", "-1%", "1.234%", "%", ".5%", "5.%", "1e1%", "100.01%", "0010%", " 5%"} {
		_, err := limitstest.Load(t, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {requests: 1, period: 1m, enforce: \""+text+"\"}}\n")
		if err == nil || !strings.Contains(err.Error(), "descriptors[0].rate_limit.enforce: found") || !strings.Contains(err.Error(), "allowed: 0% to 100%") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"rate_limit: {requests: 1, period: 1m, shadow_mode: true}":                         "found shadow_mode in a rate_limit, but it belongs in a descriptor",
		"rate_limits: [{name: n, requests: 1, period: 1m, shadow_mode: yes, enforce: 1%}]": "shadow_mode beside enforce",
		"rate_limit: {unlimited: true, enforce: 1%}":                                       "enforce beside unlimited",
	} {
		if _, err := limitstest.Load(t, "domain: d\ndescriptors:\n  - {key: k, "+text+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A limit that is only counted is bound to a place in a word of 64 bits.
func TestManyUnenforcedLimitsAreRefused(t *testing.T) {
	t.Parallel()
	limits := strings.Repeat("{name: nNUMBER, requests: 1, period: 1m}, ", rules.MaxUnenforced)
	for i := range rules.MaxUnenforced {
		limits = strings.Replace(limits, "NUMBER", string(rune('a'+i%26))+strings.Repeat("x", i/26), 1)
	}
	text := "domain: d\ndescriptors:\n  - {key: k, rate_limits: [" + limits + "{name: last, requests: 1, period: 1m, shadow_mode: true}]}\n"
	if _, err := limitstest.Load(t, text); err == nil || !strings.Contains(err.Error(), "shadow_mode or enforce on limit 65") {
		t.Error(err)
	}
}
