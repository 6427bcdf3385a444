package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
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
		Before: replay.SubjectTally{Asked: 12_300, Denied: 41}, After: replay.SubjectTally{Asked: 12_300, Denied: 1}, NewlyAllowed: 40,
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
	if want := `"subjects":{"before":{"asked":12300,"denied":41,"shadowed":0},"after":{"asked":12300,"denied":1,"shadowed":0},"newly_denied":0,"newly_allowed":40,"at_least":false}`; err != nil || strings.Count(string(line), want) != 2 {
		t.Errorf("%v: %s", err, line)
	}
}

// What the log says of each subject is what the report counts, of each rule: for random
// requests with plans, blocks, numbers of their own, shadows and reloads.
func TestSubjectsAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		r := restartingTrace(t, seed, 1500)
		want := subjectsIn(t, r.log)
		got := map[string]replay.SubjectTally{}
		for _, rule := range replayed(t, replay.Options{}, r.log).Rules {
			if got[rule.Rule] = rule.Subjects.Before; rule.Subjects.After != rule.Subjects.Before || rule.Subjects.NewlyDenied+rule.Subjects.NewlyAllowed > 0 {
				t.Errorf("seed %d: %s has other subjects after than before: %+v", seed, rule.Rule, rule.Subjects)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("seed %d: got\n%v, want\n%v", seed, got, want)
		}
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

// subjectsIn counts the subjects of each rule in a log, one by one.
func subjectsIn(t *testing.T, log []byte) map[string]replay.SubjectTally {
	t.Helper()
	seen := map[string]map[string]map[decisionlog.Result]bool{}
	for text := range bytes.Lines(log) {
		var l decisionlog.Line
		if err := l.ReadJSON(bytes.TrimSpace(text)); err != nil {
			t.Fatal(err)
		}
		if l.Kind != decisionlog.Decided {
			continue
		}
		for _, d := range l.Descriptors {
			rule, name := strings.Clone(d.Rule), fmt.Sprint(d.Entries)
			if seen[rule] == nil {
				seen[rule] = map[string]map[decisionlog.Result]bool{}
			}
			if seen[rule][name] == nil {
				seen[rule][name] = map[decisionlog.Result]bool{}
			}
			seen[rule][name][d.Result] = true
		}
	}
	counts := map[string]replay.SubjectTally{}
	for rule, subjects := range seen {
		n := replay.SubjectTally{Asked: uint64(len(subjects))}
		for _, got := range subjects {
			if got[decisionlog.Denied] {
				n.Denied++
			}
			if got[decisionlog.Shadowed] {
				n.Shadowed++
			}
		}
		counts[rule] = n
	}
	return counts
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
		"user":    {Before: replay.SubjectTally{Asked: 5, Denied: 2}, After: replay.SubjectTally{Asked: 4, Denied: 1}},
		"user=u0": {After: replay.SubjectTally{Asked: 1, Denied: 1}},
	}
	for _, rule := range report.Rules {
		if rule.Subjects != want[rule.Rule] {
			t.Errorf("%s: %+v", rule.Rule, rule.Subjects)
		}
	}
}

// Beyond MaxKeys subjects the counts are lower bounds that say so.
func TestManySubjectsAreAtLeastSoMany(t *testing.T) {
	t.Parallel()
	limits := rulesOf(t, "domain: d\ndescriptors: [{key: user, rate_limit: {algorithm: fixed_window, requests: 1, period: 1ms}}]\n")
	report, _, err := run(t, replay.Options{Limits: limits, MaxKeys: 2000}, replay.Table(""), manyUsers(5_000, 41, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := replay.SubjectCounts{After: replay.SubjectTally{Asked: 2000, Denied: 41}, AtLeast: true}
	if report.Subjects != want {
		t.Errorf("%+v", report.Subjects)
	}
	var text, page bytes.Buffer
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "subjects denied  ≥41 of ≥2,000 (2.05%)\n") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := report.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "<b>≥41</b><span>of ≥2,000 subjects denied</span>") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// usersOf is an endless table of new users of several rules, who come and go.
type usersOf struct {
	random *rand.Rand
	left   int
	line   []byte
}

func (u *usersOf) Read(to []byte) (n int, err error) {
	for n < len(to) {
		if len(u.line) == 0 {
			if u.left == 0 {
				return n, io.EOF
			}
			u.left--
			u.line = fmt.Appendf(u.line[:0], "%d,d,%s,%d\n", began-int64(u.left)*10, []string{"k0", "k1", "k2"}[u.random.IntN(3)], u.random.Uint64())
		}
		m := copy(to[n:], u.line)
		n, u.line = n+m, u.line[m:]
	}
	return n, nil
}

// However many subjects ask, what counts them takes up to 40 bytes for each that is
// counted.
func TestCountedSubjectsAreBounded(t *testing.T) {
	const counted, lines = 1 << 16, 1 << 18
	var limits strings.Builder
	limits.WriteString("domain: d\ndescriptors:\n")
	for i := range 3 {
		fmt.Fprintf(&limits, "  - {key: rule, value: k%d, descriptors: [{key: user, rate_limit: {algorithm: fixed_window, requests: 1, period: 1ms}}]}\n", i)
	}
	r, err := replay.New(replay.Options{Limits: rulesOf(t, limits.String()), MaxKeys: counted})
	if err != nil {
		t.Fatal(err)
	}
	// The first log has the states, charts and lines that any log has.
	held := func(lines int) int64 {
		l := logOfReader(t, io.MultiReader(strings.NewReader("time,domain,rule,user\n"), &usersOf{random: rand.New(rand.NewPCG(1, uint64(lines))), left: lines}), replay.Table(""))
		if err := r.Run(l); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(r)
		return heaptest.InUse()
	}
	few := held(5000)
	if many, maxGrowth := held(lines), int64(40*counted); many-few > maxGrowth+maxGrowth/8 {
		t.Errorf("%d subjects take %d bytes, where %d are allowed", lines, many-few, maxGrowth)
	}
	if n := r.Report().Subjects; !n.AtLeast || n.After.Asked != counted {
		t.Errorf("%+v", n)
	}
	runtime.KeepAlive(r)
}
