package limitsfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

func warningsOf(t *testing.T, text string) []string {
	t.Helper()
	r, err := limitstest.Load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range r.Warnings() {
		_, rest, _ := strings.Cut(w.String(), "limits.yaml:")
		got = append(got, rest)
	}
	return got
}

func TestDescriptorsThatNeverMatchAreWarnings(t *testing.T) {
	got := warningsOf(t, `domain: d
hash_tag: tennant
descriptors:
- {key: a, value: "x*"}
- {key: a, value: "xy*"}
- {key: a, value: "*y"}
- {key: a, value: "x*y"}
- {key: a, value: "**"}
- {key: a, value: "*z"}
- {key: a, value: xyz}
- {key: a}
- {key: b, value: "xy*"}
- {key: b, value: "x*"}
- {key: b}
- key: b
  value: c
  descriptors: [{key: a, value: "x*"}, {key: a, value: "x**"}]
`)
	want := []string{
		`2:11: hash_tag: no descriptor has the key "tennant", so it places nothing`,
		`5:3: descriptors[1]: never matches: the pattern "x*" before it matches all that "xy*" does`,
		`7:3: descriptors[3]: never matches: the pattern "x*" before it matches all that "x*y" does`,
		`9:3: descriptors[5]: never matches: the pattern "**" before it matches all that "*z" does`,
		`11:3: descriptors[7]: never matches: the pattern "**" of the same key matches every value`,
		`17:40: descriptors[11].descriptors[1]: never matches: the pattern "x*" before it matches all that "x**" does`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

func TestBucketsThatLookLikeQuotasAreWarnings(t *testing.T) {
	t.Parallel()
	got := warningsOf(t, `domain: d
descriptors:
- {key: month, rate_limit: {requests: 10000, period: 30d}}
- {key: one, rate_limit: {algorithm: gcra, requests: 1, period: 1d}}
- key: plans
  plans: {pro: [{name: day, algorithm: leaky_bucket, requests: 5, period: 1d}, {name: hour, requests: 3, period: 1h}]}
- {key: meant, rate_limit: {requests: 10000, period: 30d, burst: 10000}}
- {key: never, rate_limit: {requests: 0, period: 30d}}
- {key: short, rate_limit: {requests: 1000, period: 23h}}
- {key: fixed, rate_limit: {algorithm: fixed_window, requests: 10000, period: 30d}}
- {key: sliding, rate_limit: {algorithm: sliding_window, requests: 10000, period: 30d}}
- {key: envoy, rate_limit: {requests_per_unit: 10000, unit: month}}
`)
	const choose = "; for a quota choose algorithm: fixed_window or sliding_window; where a bucket is meant, write burst: "
	want := []string{
		"3:46: descriptors[0].rate_limit.period: a token_bucket of 10,000 requests every 30 days admits 10,000 at once, then about one every 4m 19s, so up to 20,000 in its first 30 days" + choose + "10000",
		"4:57: descriptors[1].rate_limit.period: a gcra of 1 request a day admits 1 at once, then one a day, so up to 2 in its first day" + choose + "1",
		"6:67: descriptors[2].plans.pro[0].period: a leaky_bucket of 5 requests a day admits 5 at once, then one every 4h 48m, so up to 10 in its first day" + choose + "5",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

// A list is leased as a whole.
func TestALeaseBesideALimitWithoutOneIsAWarning(t *testing.T) {
	t.Parallel()
	list := func(leases ...string) string {
		text := "domain: d\ndescriptors:\n- key: k\n  rate_limits:\n"
		for i, lease := range leases {
			text += fmt.Sprintf("  - {name: n%d, requests: 100, period: 10s%s}\n", i, lease)
		}
		return text
	}
	const lease = ", lease: 10ms"
	want := "5:3: descriptors[0].rate_limits: a lease is used only if all limits of the list have one"
	if got := warningsOf(t, list("", lease)); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
	if got := append(warningsOf(t, list(lease, lease)), warningsOf(t, list("", ""))...); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

func TestTooManyPatternsOfAKeyAreRefused(t *testing.T) {
	const begin = "domain: d\ndescriptors:\n- {key: k, value: exact}\n- {key: k}\n- {key: other, value: 'x*'}\n"
	pattern := func(i int) string { return fmt.Sprintf("*%d*", i) }
	full := begin + limitstest.Patterns(rules.MaxPatterns, pattern)
	if _, err := limitstest.Load(t, full); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	const allowed = "; allowed: at most 1000, which are tried one after the other; part them by a key above, or use values without *"
	checkLoadError(t, full+"- {key: k, value: 'a*'}\n- {key: k, value: 'b*'}\n",
		`limits.yaml:1006:3: descriptors[1003]: found 1002 patterns of the key "k" at this level`+allowed)
	below := "domain: d\ndescriptors:\n- key: up\n  descriptors:\n  " + strings.ReplaceAll(limitstest.Patterns(1001, pattern), "\n", "\n  ")
	checkLoadError(t, below, `limits.yaml:1005:5: descriptors[0].descriptors[1000]: found 1001 patterns of the key "k" at this level`+allowed)
}

func checkLoadError(t *testing.T, text, want string) {
	t.Helper()
	if _, err := limitstest.Load(t, text); err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %s", err, want)
	}
}

// No value is searched that is as long as the pattern.
func TestAPatternTooLongToMatchIsAWarning(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", rules.MaxSearchedValue)
	few := limitstest.Patterns(15, func(i int) string { return fmt.Sprintf("*<%d>*", i) })
	text := "domain: d\ndescriptors:\n" + few + fmt.Sprintf("- {key: k, value: '*a%s*'}\n- {key: k, value: '*%s*'}\n- {key: k, value: 'z%s*'}\n", long[1:], long+"y", "y"+long)
	got := warningsOf(t, text)
	if len(got) != 1 || !strings.HasPrefix(got[0], "19:3: descriptors[16]: never matches: it is longer than the 2048 bytes") {
		t.Errorf("with 17 that are searched for: %q", got)
	}
	if got := warningsOf(t, strings.Replace(text, few, "", 1)); len(got) != 0 {
		t.Errorf("with 2: %q", got)
	}
}
