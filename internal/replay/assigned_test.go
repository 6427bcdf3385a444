package replay_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

const planned = `domain: d
descriptors:
  - key: tenant
    plans:
      free: {name: day, requests: 2, period: 1d, algorithm: fixed_window}
      pro: {name: day, requests: 4, period: 1d, algorithm: fixed_window}
      trial: {name: day, requests: 1, period: 1d, algorithm: fixed_window}
    plan: free
`

// A subject with a plan has it under other limits too, and one with the default has
// the new one.
func TestPlansAreAppliedAsRecorded(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, planned)
	r.table.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "paying"}}},
		Base:    assign.Layer{Terms: assign.Terms{Plan: "pro"}},
	})
	r.table.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "freed"}}},
		Base:    assign.Layer{Terms: assign.Terms{Unlimited: true}},
	})
	for range 6 {
		r.after(1000)
		r.take(asking("tenant=paying", 1))
		r.take(asking("tenant=other", 1))
		r.take(asking("tenant=freed", 1))
	}
	got := replayed(t, replay.Options{Limits: rulesOf(t, strings.NewReplacer("plan: free", "plan: trial", "requests: 4", "requests: 5").Replace(planned))}, r.log)
	denied := map[string]uint64{}
	for _, s := range got.Denied {
		denied[s.Subject+" "+s.Rule] = s.Denied
	}
	if len(denied) != 2 || denied["tenant=paying tenant (plan pro)"] != 1 || denied["tenant=other tenant (plan trial)"] != 5 {
		t.Error(denied)
	}
}

// A run in which the layers of an assignment end, one after the other, is decided again as
// it was.
func TestLayersThatEndAreAppliedAsRecorded(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, planned)
	r.table.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "x"}}},
		Base:    assign.Layer{Terms: assign.Terms{Plan: "pro"}},
		Layers: []assign.Layer{
			{Terms: assign.Terms{Numbers: []assign.Numbers{{Limit: "day", Requests: 7}}}, Until: began + 12_500},
			{Terms: assign.Terms{Unlimited: true}, Until: began + 5_500},
		},
	})
	allowed := 0
	for range 20 {
		r.after(1000)
		if !r.take(asking("tenant=x", 1)).Denied {
			allowed++
		}
	}
	if allowed != 5+7 { // of 7, then of 4, which are used
		t.Errorf("%d are allowed", allowed)
	}
	got := replayed(t, replay.Options{Limits: rulesOf(t, planned)}, r.log)
	if got.Requests != 20 || got.DeniedBefore != 8 || got.DeniedAfter != 8 {
		t.Errorf("%+v", got.Totals)
	}
}

// What the limits deny now is not given back, and the rest is.
func TestGiveBacksAreOfWhatWasTaken(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 9, 0))
	first := r.take(asking("user=a", 1))
	r.after(10)
	second := r.take(asking("user=a", 1)) // is denied by 1
	r.after(10)
	r.giveBack(second)
	r.after(10)
	r.take(asking("user=a", 1)) // and so is this
	r.after(10)
	r.giveBack(first)
	r.after(10)
	r.take(asking("user=a", 1)) // and this is not
	got := replayed(t, replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 1, 0))}, r.log)
	if got.Requests != 4 || got.DeniedAfter != 2 || got.GiveBacks != 2 {
		t.Errorf("%+v", got.Totals)
	}
}

// What was recorded while the store was away is counted apart, and what failed is
// not decided.
func TestDegradedLinesAreCountedApart(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 1, 0))
	line := func(change func(*decisionlog.Line)) {
		l := &decisionlog.Line{At: r.clock, Limits: r.rules[0].Fingerprint(), Domain: "d", Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "user", Value: "a"}}, Rule: "user", Cost: 1,
			Limits: []decisionlog.Limit{{Name: "fixed_window", Result: "allowed", Degraded: true}},
		}}}
		change(l)
		r.write(l)
	}
	line(func(l *decisionlog.Line) { l.Degraded = true })
	line(func(l *decisionlog.Line) { l.Result, l.Code = decisionlog.Failed, "Unavailable" })
	r.take(asking("user=a", 1)) // the store knows nothing of those
	got := replayed(t, replay.Options{}, r.log)
	if got.Requests != 1 || got.Degraded != 1 || got.Failed != 1 || got.Comparison.Equal != 1 || got.Comparison.Different != 0 {
		t.Errorf("%+v, %+v", got.Totals, got.Comparison)
	}
	// Other limits would have been asked.
	got = replayed(t, replay.Options{Limits: r.rules[0]}, r.log)
	if got.Requests != 1 || got.Degraded != 1 || got.DeniedAfter != 1 {
		t.Errorf("%+v", got.Totals)
	}
}

// A denial from a daemon's memory took nothing, whatever the state is at its moment.
func TestRememberedDenialsAreNotCompared(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 1, 0))
	r.write(&decisionlog.Line{At: r.clock, Limits: r.rules[0].Fingerprint(), Domain: "d", Result: decisionlog.Denied, Descriptors: []decisionlog.Descriptor{{
		Entries: []bucket.Entry{{Key: "user", Value: "a"}}, Rule: "user", Cost: 1, Result: decisionlog.Denied,
		Limits: []decisionlog.Limit{{Name: "fixed_window", Result: "denied", Remembered: true}},
	}}})
	r.take(asking("user=a", 1))
	if got := replayed(t, replay.Options{}, r.log).Comparison; got.Equal != 1 || got.Remembered != 1 || got.Different != 0 {
		t.Errorf("%+v", got)
	}
	if got := replayed(t, replay.Options{Limits: r.rules[0]}, r.log); got.DeniedAfter != 1 {
		t.Errorf("with other limits: %+v", got.Totals)
	}
}

func TestHashedValuesAreTold(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 1, 0))
	r.take(asking("user=h:0011223344556677", 1))
	r.take(asking("user=h:0011223344556677", 1))
	_, warnings, err := run(t, replay.Options{}, replay.Decisions(), strings.NewReader(string(r.log)))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "test.log:2: found values that were hashed") {
		t.Errorf("%v, %q", err, warnings)
	}
}

// A request's own numbers that other limits do not take are reported, and the rest goes
// on.
func TestNumbersThatDoNotFitAreTold(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 1, 0))
	d := asking("user=a", 1)
	d.Own.Set, d.Own.Requests, d.Own.Period = true, 5000, 1e9
	r.take(d)
	r.take(asking("user=a", 1))
	report, warnings, err := run(t, replay.Options{Limits: rulesOf(t, limitOf("sliding_log", 1, 0))}, replay.Decisions(), strings.NewReader(string(r.log)))
	if err != nil || report.Requests != 1 || report.Failed != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], "test.log:2: ") || !strings.Contains(warnings[0], "allowed: ") {
		t.Errorf("%v, %q", err, warnings)
	}
}

// Beside a refusal the store is asked in parts, each at a moment of its own.
func TestRefusalsStandBesideOtherMoments(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 2, 0)+"unmatched: deny\n")
	r.take(asking("user=a", 1), asking("user=b", 1))
	limit := func(later, remaining int64) []decisionlog.Limit {
		return []decisionlog.Limit{{
			Name: "fixed_window", Result: "denied_by_other", At: r.clock + later, Seq: uint32(2 + later), Remaining: remaining, ResetAfter: time.Second - time.Duration(later)*time.Microsecond,
		}}
	}
	r.write(&decisionlog.Line{At: r.clock, Seq: 2, Limits: r.rules[0].Fingerprint(), Domain: "d", Result: decisionlog.Denied, Descriptors: []decisionlog.Descriptor{
		{Entries: []bucket.Entry{{Key: "none", Value: "a"}}, Cost: 1, Result: decisionlog.Denied, Refusal: "unmatched", Limits: []decisionlog.Limit{
			{Name: "unmatched", Result: "denied", RetryAfter: bucket.Never},
		}},
		{Entries: []bucket.Entry{{Key: "user", Value: "a"}}, Rule: "user", Cost: 1, Limits: limit(5, 0)},
		{Entries: []bucket.Entry{{Key: "user", Value: "b"}}, Rule: "user", Cost: 1, Limits: limit(9, 1)},
	}})
	// Somebody else takes in between.
	taken := limit(3, 0)
	taken[0].Result, taken[0].At, taken[0].Seq = "near", 0, 0
	r.write(&decisionlog.Line{At: r.clock + 3, Seq: 5, Limits: r.rules[0].Fingerprint(), Domain: "d", Descriptors: []decisionlog.Descriptor{
		{Entries: []bucket.Entry{{Key: "user", Value: "a"}}, Rule: "user", Cost: 1, Limits: taken},
	}})
	if got := replayed(t, replay.Options{}, r.log).Comparison; got.Equal != 3 || got.Different != 0 {
		t.Errorf("%+v", got)
	}
}

// An assignment that frees is known from the line, and counts for other limits too.
func TestFreedAreFreeOfOtherLimits(t *testing.T) {
	t.Parallel()
	const unlimited = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unlimited: true}}\n"
	r := newRecorder(t, unlimited)
	r.table.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "user", Value: "freed"}}},
		Base:    assign.Layer{Terms: assign.Terms{Unlimited: true}},
	})
	for range 3 {
		r.take(asking("user=freed", 1))
		r.take(asking("user=other", 1))
	}
	if got := replayed(t, replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 1, 0))}, r.log); got.DeniedAfter != 2 || got.Denied[0].Subject != "user=other" {
		t.Errorf("%d: %+v", got.DeniedAfter, got.Denied)
	}
}

// A report says a limit as the file has it, and not by the numbers of whoever asked first.
func TestLimitsAreToldAsTheFileHasThem(t *testing.T) {
	t.Parallel()
	limits := limitOf("fixed_window", 25_000, 0)
	r := newRecorder(t, limits)
	r.table.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "user", Value: "paying"}}},
		Base:    assign.Layer{Terms: assign.Terms{Numbers: []assign.Numbers{{Requests: 40_000}}}},
	})
	own := asking("user=a", 1)
	own.Own = decide.Override{Set: true, Requests: 7, Period: time.Second, Names: &decide.OwnNames{Whole: "numbers"}}
	r.take(asking("user=paying", 1))
	r.take(own)
	r.take(asking("user=a", 30_000))
	report := replayed(t, replay.Options{Limits: rulesOf(t, limits)}, r.log)
	told := map[string]string{}
	for _, l := range report.Rules[0].Limits {
		told[l.Name] = l.Text
	}
	if len(told) != 2 || told["fixed_window"] != "25,000 requests a second" || told["override"] != "brought by requests" {
		t.Errorf("%q", told)
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "fixed_window: 25,000 requests a second") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// On a cluster each node gives back at a moment of its own.
func TestGiveBacksHaveTheMomentsOfTheirNodes(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("token_bucket", 1, 10))
	first := r.take(asking("user=a", 5))
	r.after(500_000)
	r.take(asking("user=a", 3))
	r.after(1_500_000)
	r.giveBack(first)
	r.after(1)
	r.take(asking("user=a", 0))
	// The line is of another node, a second before.
	moved := strings.NewReplacer(
		`"kind":"give_back","time":"2026-11-23T00:00:02.`, `"kind":"give_back","time":"2026-11-23T00:00:01.`,
		`"remaining":0,"taken_at"`, fmt.Sprintf(`"at":%d,"remaining":0,"taken_at"`, began+2_000_000),
	).Replace(string(r.log))
	if moved == string(r.log) {
		t.Fatal(moved)
	}
	if got := replayed(t, replay.Options{}, []byte(moved)).Comparison; got.Equal != 3 || got.Different != 0 {
		t.Errorf("%+v", got)
	}
}

const byCalendar = `domain: d
descriptors:
  - key: tenant
    rate_limits:
      - {name: month, requests: 6, calendar: month, time_zone: Europe/Berlin}
      - {name: day, requests: 4, calendar: day}
`

// A run over borders of days and months, with a customer whose month begins on another day
// and later has other numbers, is decided again as it was; and under another number each
// customer keeps the windows.
func TestCalendarsAreAppliedAsRecorded(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, byCalendar)
	says := func(terms assign.Terms) {
		r.table.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "x"}}}, Base: assign.Layer{Terms: terms}})
	}
	says(assign.Terms{Calendar: assign.Calendar{Starts: "25", TimeZone: "UTC"}})
	allowed := map[string]int{}
	const takes = 120
	for i := range takes {
		r.after((4 * time.Hour).Microseconds())
		if i == takes/2 {
			says(assign.Terms{Calendar: assign.Calendar{Starts: "25", TimeZone: "UTC"}, Numbers: []assign.Numbers{{Limit: "month", Requests: 9}}})
		}
		for _, tenant := range []string{"x", "other"} {
			if !r.take(asking("tenant="+tenant, 1)).Denied {
				allowed[tenant]++
			}
		}
	}
	if allowed["x"] != 6+9 || allowed["other"] != 6+6 { // of the months before and after
		t.Errorf("%v are allowed", allowed)
	}
	denied := uint64(2*takes - allowed["x"] - allowed["other"])
	got := replayed(t, replay.Options{Limits: rulesOf(t, byCalendar)}, r.log)
	if got.Requests != 2*takes || got.DeniedBefore != denied || got.DeniedAfter != denied {
		t.Errorf("%+v", got.Totals)
	}
	more := replayed(t, replay.Options{Limits: rulesOf(t, strings.Replace(byCalendar, "requests: 6", "requests: 7", 1))}, r.log)
	if more.DeniedAfter != denied-3 { // one more for each month of other, and for the first of x
		t.Errorf("with one more a month: %+v", more.Totals)
	}
}
