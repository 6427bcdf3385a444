package limitsfile_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
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

func TestLimitsThatNeverBindAreWarnings(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want string // the name of the limit that is warned of, or ""
	}{
		{"requests: 100, period: 1s", "requests: 50, period: 1m", "a"},
		{"requests: 50, period: 1m", "requests: 100, period: 1s", "b"},
		{"requests: 10, period: 1s", "requests: 250, period: 1d, burst: 250", ""},
		{"requests: 100, period: 1s, burst: 49", "requests: 50, period: 1m", ""},
		{"requests: 5, period: 1s", "requests: 5, period: 1s", "b"},
		{"requests: 1, period: 1m, burst: 100", "requests: 50, period: 1m", ""}, // slower in the long run
		{"requests: 5, period: 1s", "requests: 0, period: 1d", "a"},

		// Windows that lie within those of the other.
		{"requests_per_unit: 100, unit: second", "requests_per_unit: 50, unit: minute", "a"},
		{"requests_per_unit: 50, unit: second", "requests_per_unit: 50, unit: minute", "a"},
		{"requests_per_unit: 49, unit: second", "requests_per_unit: 50, unit: minute", ""},
		{"algorithm: fixed_window, requests: 9, period: 2s", "algorithm: fixed_window, requests: 5, period: 3s", ""}, // 2..4 touches 0..3 and 3..6
		{"algorithm: fixed_window, requests: 5, period: 1s", "algorithm: fixed_window, requests: 5, period: 3s", "a"},

		// A sliding window remembers for up to a slot longer than it says.
		{"algorithm: sliding_window, requests: 50, period: 1s", "algorithm: sliding_window, requests: 50, period: 1m", "a"},
		{"algorithm: sliding_window, requests: 50, period: 1m", "algorithm: sliding_log, requests: 50, period: 1m", "b"},
		{"algorithm: sliding_window, requests: 50, period: 1m", "algorithm: sliding_log, requests: 49, period: 1m", ""},
		{"algorithm: sliding_window, requests: 51, period: 1m", "algorithm: sliding_window, requests: 50, period: 1m", "a"},
		{"algorithm: sliding_window, requests: 51, period: 1m, sub_windows: 5", "algorithm: sliding_window, requests: 50, period: 1m", ""},

		{"requests: 10, calendar: month, starts: 15", "requests: 10, calendar: month, starts: 15", "b"},
		{"requests: 10, calendar: day", "requests: 10, calendar: day, time_zone: Europe/Berlin", ""},
		{"requests: 10, calendar: day", "algorithm: fixed_window, requests: 10, period: 1d", ""},

		// Postpaid limits are charged for what others deny.
		{"requests: 100, period: 1s, postpaid: true", "requests: 50, period: 1m", ""},
		{"requests: 100, period: 1s", "requests: 50, period: 1m, postpaid: true", ""},
	} {
		t.Run(c.a+" beside "+c.b, func(t *testing.T) {
			got := strings.Join(warningsOf(t, limitstest.Descriptor("rate_limits: [{name: a, "+c.a+"}, {name: b, "+c.b+"}]")), "\n")
			switch {
			case c.want == "" && got != "",
				c.want == "a" && !strings.Contains(got, `rate_limits[0]: never denies what "b" allows`),
				c.want == "b" && !strings.Contains(got, `rate_limits[1]: never denies what "a" allows`),
				strings.Count(got, "\n") > 0:
				t.Errorf("%s beside %s: want %q, got %q", c.a, c.b, c.want, got)
			}
		})
	}
}

// randomLimit writes a limit with numbers small enough to be met; or so large,
// and so close together, that buckets count in different quanta.
func randomLimit(r *rand.Rand, large bool) string {
	a := buckettest.Rates()[r.IntN(6)]
	if large {
		a = buckettest.Rates()[r.IntN(4)]
		s := fmt.Sprintf("algorithm: %s, requests: %d, period: %ds", a, []int64{1<<32 - 5, 1<<32 - 6, 1 << 31, 1<<31 - 1}[r.IntN(4)], []int{1, 2, 7, 60, 120, 3600}[r.IntN(6)])
		if a.IsBucket() && r.IntN(2) == 0 {
			s += fmt.Sprintf(", burst: %d", 1<<32-1-r.IntN(3)*1_000_000)
		}
		return s
	}
	s := fmt.Sprintf("algorithm: %s, requests: %d, period: %dms", a, 1+r.IntN(12), []int{1, 2, 3, 4, 6, 7, 12, 24, 60}[r.IntN(9)])
	if a.IsBucket() && r.IntN(2) == 0 {
		s += fmt.Sprintf(", burst: %d", 1+r.IntN(20))
	}
	if a == bucket.SlidingWindow {
		s += fmt.Sprintf(", sub_windows: %d", 1+r.IntN(4))
	}
	return s
}

// Pairs of limits with the warning get random hits and refunds, by the steps that
// the stores use.
func TestLimitsWithTheWarningNeverBind(t *testing.T) {
	t.Parallel()
	warned := make(map[string]int)
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 2))
		var s strings.Builder
		s.WriteString("domain: d\ndescriptors:\n")
		for i := range 40 {
			fmt.Fprintf(&s, "- {key: k%d, rate_limits: [{name: a, %s}, {name: b, %s}]}\n", i, randomLimit(r, seed%4 == 0), randomLimit(r, seed%4 == 0))
		}
		rules, err := limitstest.Load(t, s.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range rules.Warnings() {
			limits := rules.Domain("d").Rules()[w.Line-3].Limits
			loose, tight := limits[0], limits[1]
			if strings.Contains(w.Path, "rate_limits[1]") {
				loose, tight = tight, loose
			}
			warned[loose.Algorithm.String()+" beside "+tight.Algorithm.String()]++
			for range 4 {
				driveNeverBinds(t, r, loose, tight)
			}
		}
	}
	t.Logf("pairs: %v", warned)
	if len(warned) < 14 {
		t.Errorf("only %d kinds of pairs were said never to bind", len(warned))
	}
}

func driveNeverBinds(t *testing.T, r *rand.Rand, loose, tight *bucket.Limit) {
	t.Helper()
	var ls, ts bucket.State
	now := time.Now().UnixMicro()/60000*60000 + r.Int64N(60000)
	refunds := r.IntN(2) == 0
	for range 300 {
		// Often to a border, and often stay.
		switch r.IntN(6) {
		case 0:
			now += r.Int64N(2000)
		case 1:
			now = (now/1000+1)*1000 - r.Int64N(2)
		case 2:
			now = (now/tight.PeriodMicros+1)*tight.PeriodMicros - r.Int64N(2)
		case 3:
			now = (now/loose.PeriodMicros+1)*loose.PeriodMicros - r.Int64N(2)
		}
		cost := 1 + r.Int64N(tight.Capacity)
		if r.IntN(2) == 0 {
			cost = max(1, tight.Decide(&ts, now, bucket.Demand{}).Remaining)
		}
		if refunds && r.IntN(3) == 0 {
			cost = -cost
		}
		td, ld := tight.Decide(&ts, now, bucket.Demand{Cost: cost}), loose.Decide(&ls, now, bucket.Demand{Cost: cost})
		if !td.Allowed() {
			continue
		}
		if !ld.Allowed() {
			t.Fatalf("said never to bind: %+v beside %+v, but it denies a cost of %d", loose.Spec, tight.Spec, cost)
		}
		tight.Charge(&ts, now, bucket.Demand{Cost: cost}, td)
		loose.Charge(&ls, now, bucket.Demand{Cost: cost}, ld)
	}
}
