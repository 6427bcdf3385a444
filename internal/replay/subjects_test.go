package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// manyUsers is a table of requests within a second: one of each user, and so many of the
// first few.
func manyUsers(users, busy, times int) *bytes.Buffer {
	log := bytes.NewBufferString("time,domain,user\n")
	for i := range users {
		n := 1
		if i < busy {
			n = times
		}
		for range n {
			fmt.Fprintf(log, "%d,d,u%d\n", began+int64(i), i)
		}
	}
	return log
}

// A report counts subjects beside requests: those that asked, those of whom a request was
// denied, and those for whom that changes. People read thousands apart, programs do not.
func TestReportCountsSubjects(t *testing.T) {
	t.Parallel()
	o := replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 3, 0)), Against: rulesOf(t, limitOf("fixed_window", 1, 0))}
	log := manyUsers(12_300, 41, 2)
	fmt.Fprintf(log, "%d,d,u7\n%d,d,u7\n", began+20_000, began+20_001)
	report, _, err := run(t, o, replay.Table(""), log)
	if err != nil {
		t.Fatal(err)
	}
	want := replay.SubjectCounts{
		Before: replay.Counts{Asked: 12_300, Denied: 41}, After: replay.Counts{Asked: 12_300, Denied: 1}, NewlyAllowed: 40,
	}
	if report.Subjects != want || report.Rules[0].Subjects != want {
		t.Errorf("%+v and %+v", report.Subjects, report.Rules[0].Subjects)
	}
	var text, page bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12,343 requests from", "subjects denied  41 of 12,300 (0.3333%) before, 1 of 12,300 (0.00813%) after\n",
		"newly denied     0 requests, 0 subjects\n", "newly allowed    42 requests, 40 subjects\n", "(subjects)    12,300  41 (0.3333%)   1 (0.00813%)   0      40\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, text.String())
		}
	}
	if err := report.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12,343 requests", "<b>41</b><span>of 12,300 subjects denied before</span>", "<b>1</b><span>of 12,300 subjects denied after</span>",
		`<td>(subjects)</td><td class="n">12,300</td><td class="n">41 (0.3333%)</td><td class="n">1 (0.00813%)</td><td class="n">0</td><td class="n">40</td>`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
	line, err := json.Marshal(report)
	if want := `"subjects":{"before":{"asked":12300,"denied":41,"shadowed":0},"after":{"asked":12300,"denied":1,"shadowed":0},"newly_denied":0,"newly_allowed":40}`; err != nil || strings.Count(string(line), want) != 2 {
		t.Errorf("%v: %s", err, line)
	}
}

// Of two sets of limits that are compared, each denies whom it denies alone.
func TestSubjectsAreThoseOfEachAlone(t *testing.T) {
	t.Parallel()
	changed := uint64(0)
	for seed := range uint64(4) {
		r := randomTrace(t, seed, 1500)
		of := func(o replay.Options) map[string]replay.SubjectCounts {
			counts := map[string]replay.SubjectCounts{}
			for _, rule := range replayed(t, o, r.log).Rules {
				counts[rule.Rule] = rule.Subjects
			}
			return counts
		}
		both := of(replay.Options{Limits: r.rules[1], Against: r.rules[0]})
		then, now := of(replay.Options{Limits: r.rules[0]}), of(replay.Options{Limits: r.rules[1]})
		for rule, n := range both {
			if n.Before != then[rule].After || n.After != now[rule].After {
				t.Errorf("seed %d: %s has %+v, alone %+v and %+v", seed, rule, n, then[rule].After, now[rule].After)
			}
			if n.After.Denied+n.NewlyAllowed != n.Before.Denied+n.NewlyDenied {
				t.Errorf("seed %d: %s has %+v", seed, rule, n)
			}
			changed += n.NewlyDenied + n.NewlyAllowed
		}
		if len(both) < 10 {
			t.Errorf("seed %d: %d rules", seed, len(both))
		}
	}
	if changed == 0 {
		t.Error("no subject gets something else")
	}
}

// Who asks under one rule before and under another after is counted in each, and is newly
// denied only if it was not denied before.
func TestSubjectsThatChangeTheirRule(t *testing.T) {
	t.Parallel()
	const apart = "domain: d\ndescriptors:\n  - {key: user, value: u0, rate_limit: {algorithm: fixed_window, requests: 1, period: 1s}}\n  - {key: user, rate_limit: {algorithm: fixed_window, requests: 1, period: 1s}}\n"
	report, _, err := run(t, replay.Options{Limits: rulesOf(t, apart), Against: rulesOf(t, limitOf("fixed_window", 1, 0))}, replay.Table(""), manyUsers(5, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]replay.SubjectCounts{
		"user":    {Before: replay.Counts{Asked: 5, Denied: 2}, After: replay.Counts{Asked: 4, Denied: 1}},
		"user=u0": {After: replay.Counts{Asked: 1, Denied: 1}},
	}
	for _, rule := range report.Rules {
		if rule.Subjects != want[rule.Rule] {
			t.Errorf("%s: %+v", rule.Rule, rule.Subjects)
		}
	}
}

// Subjects beyond MaxKeys are not counted, and the report says so.
func TestSubjectsBeyondTheBoundAreNotCounted(t *testing.T) {
	t.Parallel()
	limits := rulesOf(t, "domain: d\ndescriptors: [{key: user, rate_limit: {algorithm: fixed_window, requests: 1, period: 1ms}}]\n")
	report, _, err := run(t, replay.Options{Limits: limits, MaxKeys: 2000}, replay.Table(""), manyUsers(5_000, 41, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := replay.SubjectCounts{After: replay.Counts{Asked: 2000, Denied: 41}}
	if report.Subjects != want {
		t.Errorf("%+v", report.Subjects)
	}
	var text, page bytes.Buffer
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "  41 of 2,000 (2.05%)\nof subjects beyond --max-keys, not counted  3,000\n") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := report.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "<b>41</b><span>of 2,000 subjects denied</span>") {
		t.Errorf("%v: %s", err, page.String())
	}
}
