package replay_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// limitOf is a file of one limit.
func limitOf(algorithm string, requests, burst int64) string {
	numbers := fmt.Sprintf("algorithm: %s, requests: %d, period: 1s", algorithm, requests)
	if burst > 0 {
		numbers += fmt.Sprintf(", burst: %d", burst)
	}
	return "domain: d\ndescriptors:\n  - {key: user, rate_limit: {" + numbers + "}}\n"
}

// bursty is a table of requests that come in bursts, each with a cost up to maxCost.
func bursty(seed uint64, maxCost int) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	var b bytes.Buffer
	fmt.Fprintln(&b, "time,user,cost,domain")
	at := began
	for range 120 {
		at += random.Int64N(700_000)
		user := random.IntN(4)
		for range 1 + random.IntN(8) {
			at += random.Int64N(20_000)
			fmt.Fprintf(&b, "%d,u%d,%d,d\n", at, user, 1+random.IntN(maxCost))
		}
	}
	return b.Bytes()
}

// passing is the share of requests that pass a file's limits.
func passing(t testing.TB, limits string, log []byte) float64 {
	t.Helper()
	r, err := replay.New(replay.Options{Limits: rulesOf(t, limits)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(logOf(t, log, replay.Table(""))); err != nil {
		t.Fatal(err)
	}
	found := r.Report()
	return 1 - deniedShare(found.Rules[0].After)
}

// fitsOf has limits be proposed that let a share of requests pass.
func fitsOf(t testing.TB, limits string, log []byte, share float64) *replay.Report {
	t.Helper()
	return fitsBy(t, replay.ByRequest, limits, log, share)
}

func fitsBy(t testing.TB, by replay.FitBy, limits string, log []byte, share float64) *replay.Report {
	t.Helper()
	r, err := replay.New(replay.Options{Limits: rulesOf(t, limits), Fit: share, FitBy: by})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(logOf(t, log, replay.Table(""))); err != nil {
		t.Fatal(err)
	}
	return r.Report()
}

// Of requests of one cost, the numbers are those that a replay of each candidate
// finds.
func TestFitIsTheSmallest(t *testing.T) {
	t.Parallel()
	for seed, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"} {
		isBucket := seed > 2
		log := bursty(uint64(seed), 1)
		const share = 0.97
		want, wantBurst := int64(1), int64(0)
		for ; ; want++ {
			if isBucket {
				wantBurst = 2 * want
			}
			if passing(t, limitOf(algorithm, want, wantBurst), log) >= share {
				break
			}
		}
		if isBucket {
			for wantBurst > 1 && passing(t, limitOf(algorithm, want, wantBurst-1), log) >= share {
				wantBurst--
			}
		}
		begin := limitOf(algorithm, 2, 0)
		if isBucket {
			begin = limitOf(algorithm, 2, 4)
		}
		got := fitsOf(t, begin, log, share).Fits
		if len(got) != 1 || got[0].ProposedRequests != want || got[0].ProposedBurst != wantBurst || got[0].ProposedPassed < share {
			t.Errorf("%s: wanted %d and %d, got %+v", algorithm, want, wantBurst, got)
		}
	}
}

// Of requests of several costs, the numbers let the share pass.
func TestFitLetsItsSharePass(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		log := bursty(seed, 9)
		f := fitsOf(t, limitOf("token_bucket", 1, 0), log, 0.999).Fits[0]
		if got := passing(t, limitOf("token_bucket", f.ProposedRequests, f.ProposedBurst), log); got < 0.999 || got != f.ProposedPassed {
			t.Errorf("seed %d: %v pass: %+v", seed, got, f)
		}
	}
}

// Two limits of a rule deny different requests: one those that come at once, the other
// those that come all the time.
func TestFitLetsItsSharePassARule(t *testing.T) {
	t.Parallel()
	const limits = `domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: second, requests: 1, period: 1s}
      - {name: long, algorithm: fixed_window, requests: 1, period: 20s}
      - {name: trial, requests: 1, period: 1s, shadow_mode: true}
`
	for seed := range uint64(5) {
		log := bursty(seed, 1)
		f := fitsOf(t, limits, log, 0.9)
		var text bytes.Buffer
		if err := f.WriteFits(&text); err != nil {
			t.Fatal(err)
		}
		if got := passing(t, text.String(), log); got < 0.9 {
			t.Errorf("seed %d: %v pass\n%s", seed, got, text.String())
		}
		if alone := f.Fits[2]; alone.ProposedPassed < 0.9 || alone.ProposedRequests > f.Fits[0].ProposedRequests {
			t.Errorf("seed %d: the trial is %+v, and the limit in force %+v", seed, alone, f.Fits[0])
		}
	}
}

func TestFitSaysWhatCannotBe(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	fmt.Fprintln(&log, "time,user,domain")
	for i := range 1500 {
		fmt.Fprintf(&log, "%d,u,d\n", began+int64(i))
	}
	f := fitsOf(t, limitOf("sliding_log", 1, 0), log.Bytes(), 1).Fits[0]
	if f.ProposedRequests != 0 || !strings.Contains(f.Problem, "no sliding_log") {
		t.Errorf("%+v", f)
	}
}

// What is proposed loads, whatever the rules are.
func TestFitsLoad(t *testing.T) {
	t.Parallel()
	limits := strings.Replace(allAlgorithms, "descriptors:\n", `descriptors:
  - {key: path, value: "/a*", share_threshold: true, rate_limit: {algorithm: sliding_window, sub_windows: 7, requests: 3, period: 1h}, descriptors: [{key: user, value: "x: y # z", rate_limit: {requests: 1, period: 1500ms}}]}
`, 1)
	r := newRecorder(t, limits)
	for i := range 400 {
		r.after(5000)
		for _, key := range []string{"token", "gcra", "leaky", "fixed", "sliding", "log", "postpaid", "report", "shadow", "quota", "several", "tenant", "path=/a1,user=x: y # z", "path=/a"} {
			if !strings.Contains(key, "=") {
				key += fmt.Sprintf("=%d", i%5)
			}
			r.take(asking(key, 1))
		}
	}
	report := replayed(t, replay.Options{Limits: rulesOf(t, limits), Fit: 0.99, FitBy: replay.ByRequest}, r.log)
	if len(report.Fits) < 16 {
		t.Errorf("%d fits", len(report.Fits))
	}
	var text bytes.Buffer
	if err := report.WriteFits(&text); err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(t, text.String())
	again := replayed(t, replay.Options{Limits: rules}, r.log)
	for _, rule := range again.Rules {
		if deniedShare(rule.After) > 0.0101 {
			t.Errorf("%s: %v is denied\n%s", rule.Rule, deniedShare(rule.After), text.String())
		}
	}
}

// deniedShare is the part of what was asked that was denied, 0 to 1.
func deniedShare(t replay.Tally) float64 { return float64(t.Denied) / float64(max(1, t.Asked)) }

// What a file says beside the numbers stays: limits on trial, the default plan and the
// plans that nobody has, and all of an alias and a merge.
func TestFitsKeepWhatTheFileSays(t *testing.T) {
	t.Parallel()
	const limits = `domain: d
unmatched: deny
descriptors:
  - key: tenant
    plans:
      free: &free {name: day, requests: 2, period: 1h}
      pro: {<<: *free, requests: 9}
      internal: {unlimited: true}
    plan: free
    on_store_failure: deny
  - key: user
    value_to_metric: true
    rate_limits:
      - {name: now, requests: 4, period: 1h, burst: 5} # of 2025
      - {name: next, requests: 1, period: 1h, shadow_mode: true}
    descriptors:
      - key: route
        rate_limits: [*free]
      - {key: never, rate_limit: {requests: 1, period: 1s}}
  - {key: some, rate_limit: {requests: 1, period: 1h, enforce: 50%}}
  - {key: theirs, rate_limit: {requests_per_unit: 1, unit: hour}}
  - {key: never, rate_limit: {requests: 1, period: 1s}}
`
	r := newRecorder(t, limits)
	for range 10 {
		r.after(5000)
		for _, key := range []string{"tenant", "user", "some", "theirs"} {
			r.take(asking(key+"=a", 1))
		}
		r.take(asking("user=a,route=b", 1))
	}
	report := replayed(t, replay.Options{Limits: rulesOf(t, limits), Fit: 1}, r.log)
	var text bytes.Buffer
	if err := report.WriteFits(&text); err != nil {
		t.Fatal(err)
	}
	const want = `# limits file of the domain d: the rules that were asked, with these numbers
domain: d
unmatched: deny
descriptors:
  - {key: some, rate_limit: {requests: 10, period: 1h, enforce: 50%}}
  - key: tenant
    plans:
      free: {name: day, requests: 10, period: 1h}
      pro: {requests: 9, name: day, period: 1h}
      internal: {unlimited: true}
    plan: free
    on_store_failure: deny
  - {key: theirs, rate_limit: {requests_per_unit: 10, unit: hour}}
  - key: user
    value_to_metric: true
    rate_limits:
      - {name: now, requests: 8, period: 1h, burst: 10} # of 2025
      - {name: next, requests: 10, period: 1h, shadow_mode: true}
    descriptors:
      - key: route
        rate_limits: [{name: day, requests: 10, period: 1h}]
`
	if text.String() != want {
		t.Errorf("proposed is\n%s", text.String())
	}
	rulesOf(t, text.String())
}
