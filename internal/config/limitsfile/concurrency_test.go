package limitsfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

func TestConcurrencyIsRead(t *testing.T) {
	set, err := limitstest.Load(t, `domain: d
hash_tag: tenant
algorithm: fixed_window
descriptors:
- key: tenant
  rate_limit: {requests: 5, period: 1s}
  descriptors:
  - key: request_id
    on_store_failure: deny
    rate_limits:
    - {name: few, algorithm: concurrency, requests: 20, hold: 60s}
    - {name: long, algorithm: concurrency, requests: 5, hold: 1.5h, enforce: 10%}
  - key: job
    plan: free
    plans:
      free: {algorithm: concurrency, requests: 1, hold: 1ms}
      paid: [{name: jobs, algorithm: concurrency, requests: 10000, hold: 366d}]
      own: {unlimited: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	match := func(key string) *bucketRule {
		r := set.Domain("d").Match([]bucket.Entry{{Key: "tenant", Value: "a"}, {Key: key, Value: "x"}})
		return &bucketRule{r.HasHolders, r.Limits}
	}
	request := match("request_id")
	if !request.hasHolders || len(request.limits) != 2 {
		t.Fatalf("the rule is %+v", request)
	}
	for i, want := range []bucket.Spec{
		{Name: "few", Algorithm: bucket.Concurrency, Requests: 20, Period: time.Minute, OnStoreFailure: bucket.FailDeny},
		{Name: "long", Algorithm: bucket.Concurrency, Requests: 5, Period: 90 * time.Minute, OnStoreFailure: bucket.FailDeny, Unenforced: 9000},
	} {
		if got := request.limits[i].Spec; got != want {
			t.Errorf("limit %d is %+v, want %+v", i, got, want)
		}
	}
	if !match("job").hasHolders {
		t.Error("a rule with plans of requests in flight is not known as that")
	}
	if set.Domain("d").Match([]bucket.Entry{{Key: "tenant", Value: "a"}}).HasHolders {
		t.Error("a rate has holders")
	}
}

type bucketRule struct {
	hasHolders bool
	limits     []*bucket.Limit
}

const concurrencyNumbers = "requests, how many may be in flight at once, with hold, how long a holder that is not heard of keeps its slot"

// How a limit of requests in flight can be wrong, and all that is said of it.
func TestBadConcurrencyIsRefused(t *testing.T) {
	schema := limitsSchema(t)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a period", limit("algorithm: concurrency, requests: 5, period: 1s"),
			[]string{"4:53: descriptors[0].rate_limit.period: found period on a concurrency; allowed: " + concurrencyNumbers}},
		{"Envoy's spelling", limit("algorithm: concurrency, requests_per_unit: 5, unit: second"), []string{
			"4:40: descriptors[0].rate_limit.requests_per_unit: found requests_per_unit on a concurrency; allowed: " + concurrencyNumbers,
			"4:62: descriptors[0].rate_limit.unit: found unit on a concurrency; allowed: " + concurrencyNumbers}},
		{"a calendar", limit("algorithm: concurrency, requests: 5, calendar: day"),
			[]string{"4:53: descriptors[0].rate_limit.calendar: found calendar on a concurrency; allowed: " + concurrencyNumbers}},
		{"all of a calendar beside the hold", limit("algorithm: concurrency, requests: 5, hold: 1s, calendar: day, time_zone: UTC, starts: '06:00'"), []string{
			"4:63: descriptors[0].rate_limit.calendar: found calendar on a concurrency; allowed: " + concurrencyNumbers,
			"4:78: descriptors[0].rate_limit.time_zone: found time_zone on a concurrency; allowed: " + concurrencyNumbers,
			"4:94: descriptors[0].rate_limit.starts: found starts on a concurrency; allowed: " + concurrencyNumbers}},
		{"no numbers", limit("algorithm: concurrency"),
			[]string{"4:15: descriptors[0].rate_limit: found a concurrency without numbers; allowed: " + concurrencyNumbers}},
		{"no hold", limit("algorithm: concurrency, requests: 5"),
			[]string{"4:15: descriptors[0].rate_limit: found requests without hold; allowed: requests with hold"}},
		{"no requests", limit("algorithm: concurrency, hold: 5s"),
			[]string{"4:15: descriptors[0].rate_limit: found hold without requests; allowed: requests with hold"}},
		{"too many", limit("algorithm: concurrency, requests: 10001, hold: 1s"),
			[]string{"4:50: descriptors[0].rate_limit.requests: found 10001; allowed: 0 to 10000 for a concurrency, which keeps each holder"}},
		{"a burst", limit("algorithm: concurrency, requests: 5, hold: 1s, burst: 7"),
			[]string{"4:70: descriptors[0].rate_limit.burst: found 7; allowed: no burst on a concurrency, only on token_bucket, gcra and leaky_bucket"}},
		{"sub-windows", limit("algorithm: concurrency, requests: 5, hold: 1s, sub_windows: 7"),
			[]string{"4:76: descriptors[0].rate_limit.sub_windows: found 7; allowed: no sub_windows on a concurrency, only on sliding_window"}},
		{"postpaid", limit("algorithm: concurrency, requests: 5, hold: 1s, postpaid: true"),
			[]string{"4:73: descriptors[0].rate_limit.postpaid: found true; allowed: no postpaid on a concurrency, where nothing is used up"}},
		{"unlimited", limit("unlimited: true, hold: 1s"),
			[]string{"4:33: descriptors[0].rate_limit.hold: found hold beside unlimited; allowed: either unlimited: true or numbers"}},
		{"a whole domain", "domain: d\nalgorithm: concurrency\n",
			[]string{"2:12: algorithm: found concurrency for all limits of a domain; allowed: concurrency at each limit that counts requests in flight, since it needs a hold, and a last entry that names the holder"}},
		{"a rate beside it", limitstest.Descriptor("rate_limits: [{name: a, algorithm: concurrency, requests: 5, hold: 1s}, {name: b, requests: 5, period: 1s}]"),
			[]string{"4:3: descriptors[0].rate_limits: found a rate beside a concurrency; allowed: either of them in a rule: the last entry names the holder, so the rate would be another for each holder; a rate for all stands on the descriptor above"}},
		{"a plan of rates beside it", limitstest.Descriptor("plans: {a: {algorithm: concurrency, requests: 5, hold: 1s}, b: {requests: 5, period: 1s}}"),
			[]string{"4:3: descriptors[0].plans: found a rate beside a concurrency; allowed: either of them in a rule: the last entry names the holder, so the rate would be another for each holder; a rate for all stands on the descriptor above"}},
		{"a shared threshold", limitstest.Descriptor("value: x*\n  share_threshold: true\n  rate_limit: {algorithm: concurrency, requests: 5, hold: 1s}"),
			[]string{"5:3: descriptors[0].share_threshold: found share_threshold on a concurrency; allowed: it on rates: the value of the last entry names the holder, and holders share the limit as they are"}},
		{"a hash tag of the holder", "domain: d\nhash_tag: k\ndescriptors:\n- {key: k, rate_limit: {algorithm: concurrency, requests: 5, hold: 1s}}\n",
			[]string{`2:11: hash_tag: found the hash_tag "k", which names the holder in the concurrency of the rule k (line 4); allowed: a key before the last one, so that all holders of a limit have one place`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema.refuses(t, c.name, c.text)
			_, err := limitstest.Load(t, c.text)
			if err == nil {
				t.Fatal("it is read")
			}
			var got []string
			for line := range strings.Lines(err.Error()) {
				_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "limits.yaml:")
				got = append(got, rest)
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// The tag and the rule may be in two files.
func TestHashTagOfAHolderInAnotherFile(t *testing.T) {
	const rule = "domain: d\ndescriptors:\n- {key: k, rate_limit: {algorithm: concurrency, requests: 5, hold: 1s}}\n"
	for first, second := range map[string]string{"domain: d\nhash_tag: k\n": rule, rule: "domain: d\nhash_tag: k\n"} {
		dir := t.TempDir()
		for i, text := range []string{first, second} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".yaml")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := merging.Load(dir); err == nil || !strings.Contains(err.Error(), "names the holder") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestWarningsOfConcurrency(t *testing.T) {
	got := warningsOf(t, `domain: d
descriptors:
- {key: a, value: x, rate_limit: {algorithm: concurrency, requests: 5, hold: 1s}}
- {key: b, value: "x*", rate_limit: {algorithm: concurrency, requests: 5, hold: 1s}}
`)
	want := []string{
		"3:12: descriptors[0].value: is the only holder that there can be, since the value of the last entry names it: it has one slot however many requests are in flight, and none is denied; leave the value out",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}
