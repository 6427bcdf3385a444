package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// wholly counts the subjects of whom a file's limits deny no request.
func wholly(t testing.TB, limits string, log []byte) uint64 {
	t.Helper()
	report, _, err := run(t, replay.Options{Limits: rulesOf(t, limits)}, replay.Table(""), bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	return report.Subjects.After.Asked - report.Subjects.After.Denied
}

// textOf is a report as people read it.
func textOf(t testing.TB, r *replay.Report) string {
	t.Helper()
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// smallestFor looks for the smallest numbers of a limit with which enough subjects pass
// whole, one after the other. Of a bucket the burst is twice the requests first.
func smallestFor(t testing.TB, algorithm string, isBucket bool, log []byte, enough uint64) (requests, burst int64) {
	t.Helper()
	for requests = 1; ; requests++ {
		if isBucket {
			burst = 2 * requests
		}
		if wholly(t, limitOf(algorithm, requests, burst), log) >= enough {
			break
		}
	}
	for burst > 1 && wholly(t, limitOf(algorithm, requests, burst-1), log) >= enough {
		burst--
	}
	return requests, burst
}

// without is a table without the rows of a user.
func without(log []byte, user string) []byte {
	var rest []byte
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(","+user+",")) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// The numbers are those that a replay of each candidate finds, whatever requests cost:
// for so many of the subjects, for who is left out, and for all but the busiest.
func TestFitBySubjectIsTheSmallest(t *testing.T) {
	t.Parallel()
	for seed, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"} {
		isBucket := seed > 2
		log := bytes.Join(bytes.SplitAfter(bursty(uint64(seed), 3), []byte("\n"))[:150], nil)
		begin := limitOf(algorithm, 2, 0)
		if isBucket {
			begin = limitOf(algorithm, 2, 4)
		}
		some := fitsBy(t, replay.BySubject, begin, log, 0.7).Fits[0] // 3 of 4
		requests, burst := smallestFor(t, algorithm, isBucket, log, 3)
		if some.ProposedRequests != requests || some.ProposedBurst != burst || some.ProposedPassedWhole != 3 || some.Busiest != nil || len(some.LeftOut) != 1 {
			t.Fatalf("%s: wanted %d and %d, got %+v", algorithm, requests, burst, some)
		}
		all := fitsBy(t, replay.BySubject, begin, log, 0.999).Fits[0]
		requests, burst = smallestFor(t, algorithm, isBucket, log, 4)
		if all.ProposedRequests != requests || all.ProposedBurst != burst || all.ProposedPassedWhole != 4 || all.ProposedPassed != 1 || len(all.LeftOut) != 0 {
			t.Errorf("%s: wanted %d and %d, got %+v", algorithm, requests, burst, all)
		}
		out, user := some.LeftOut[0], strings.TrimPrefix(some.LeftOut[0].Subject, "user=")
		if all.Busiest == nil || all.Busiest.Requests != all.ProposedRequests {
			t.Errorf("%s: the busiest is %+v", algorithm, all)
		}
		if all.Busiest.Subject == out.Subject {
			requests, burst = smallestFor(t, algorithm, isBucket, without(log, user), 3)
			if all.WithoutRequests != requests || all.WithoutBurst != burst {
				t.Errorf("%s: without the busiest wanted %d and %d, got %+v", algorithm, requests, burst, all)
			}
		}
		alone := log
		for i := range 4 {
			if name := fmt.Sprintf("u%d", i); name != user {
				alone = without(alone, name)
			}
		}
		if requests, burst = smallestFor(t, algorithm, isBucket, alone, 1); out.Requests != requests || out.Burst != burst {
			t.Errorf("%s: %s needs %d and %d, got %+v", algorithm, user, requests, burst, out)
		}
	}
}

// crowded is a table of one to six requests of each of some users within a minute, and of
// 6,000 in all of abusers.
func crowded(users, abusers int) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "time,user,domain")
	for round := range 6 {
		at := began + int64(round)*9_000_000
		for user := range users {
			if round <= user%6 {
				fmt.Fprintf(&b, "%d,u%d,d\n", at, user)
			}
		}
		for i := range 1000 * min(1, abusers) {
			fmt.Fprintf(&b, "%d,\"bot %d, it's\",d\n", at+1000*int64(i), i%abusers)
		}
	}
	return b.Bytes()
}

const perMinute = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {name: minute, algorithm: sliding_window, requests: 2, period: 1m}}\n"

// One abuser with a large part of the requests drives the numbers by request, and is left
// out and named by subject.
func TestFitBySubjectLeavesAnAbuserOut(t *testing.T) {
	t.Parallel()
	log := crowded(1200, 1)
	f := fitsBy(t, replay.BySubject, perMinute, log, 0.999)
	fit := f.Fits[0]
	if fit.ProposedRequests != 6 || fit.Subjects != 1201 || fit.ProposedPassedWhole != 1200 || len(fit.LeftOut) != 1 || fit.LeftOut[0].Requests != 6000 || fit.LeftOut[0].Asked != 6000 || fit.Busiest != nil {
		t.Errorf("%+v", fit)
	}
	text := textOf(t, f)
	for _, want := range []string{
		"smallest limits with which 99.9% of subjects pass whole\n", "1,200 of 1,201",
		"\nleft out by user, minute of the domain d: 1 of 1,201 subjects\n  NEEDS         ASKED  SUBJECT\n  6,000 per 1m  6,000  'user=bot 0\\, it'\\''s'\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	var page bytes.Buffer
	if err := f.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "minute of the domain d: 1 of 1,201 subjects") || !strings.Contains(page.String(), "6,000 per 1m") {
		t.Errorf("%v: %s", err, page.String())
	}
	line, err := json.Marshal(f)
	if want := `"left_out":[{"subject":"user=bot 0\\, it's","asked":6000,"requests":6000,"burst":0}]`; err != nil || !strings.Contains(string(line), want) || !strings.Contains(string(line), `"by":"subject"`) {
		t.Errorf("%v: it lacks %s: %s", err, want, line)
	}
	if by := fitsOf(t, perMinute, log, 0.999); by.Fits[0].ProposedRequests < 5000 || by.Fits[0].LeftOut != nil || !strings.Contains(textOf(t, by), "with which 99.9% of requests pass\n") {
		t.Errorf("by request: %+v", by.Fits[0])
	}
	// Of more than are left out, those that need most drive the numbers, and some are named.
	many := fitsBy(t, replay.BySubject, perMinute, crowded(2000, 9), 0.995)
	if fit := many.Fits[0]; fit.ProposedPassedWhole != 2000 || len(fit.LeftOut) != 5 || !strings.Contains(textOf(t, many), "left out by user, minute of the domain d: 9 of 2,009 subjects, of whom these 5 need most\n") {
		t.Errorf("%+v\n%s", fit, textOf(t, many))
	}
}

// Of fewer than 1,000 subjects 99.9 % are all of them: the report says who drives the
// numbers, and what the others need.
func TestFitSaysWhoDrivesFewSubjects(t *testing.T) {
	t.Parallel()
	f := fitsBy(t, replay.BySubject, perMinute, crowded(500, 1), 0.999)
	fit := f.Fits[0]
	if fit.ProposedRequests != 6000 || fit.Busiest == nil || fit.Busiest.Subject != `user=bot 0\, it's` || fit.WithoutRequests != 6 {
		t.Errorf("%+v", fit)
	}
	const want = `
driven by the busiest, since of so few subjects not one may be left out
  RULE  LIMIT   SUBJECTS  WITHOUT IT  ASKED  DOMAIN  BUSIEST
  user  minute  501       6 per 1m    6,000  d       'user=bot 0\, it'\''s'
`
	if text := textOf(t, f); !strings.Contains(text, want) {
		t.Errorf("it lacks %q:\n%s", want, text)
	}
	alone := fitsBy(t, replay.BySubject, perMinute, crowded(0, 1), 0.999)
	if text := textOf(t, alone); !strings.Contains(text, "  user  minute  1         -           6,000  d       'user=bot 0") {
		t.Error(text)
	}
	if text := textOf(t, fitsBy(t, replay.BySubject, perMinute, crowded(1200, 1), 1)); !strings.Contains(text, "driven by the busiest, since 100% leaves nobody out\n") {
		t.Error(text)
	}
	// Where the one who needs most needs what others do, nobody drives anything.
	even := fitsBy(t, replay.BySubject, perMinute, crowded(500, 0), 0.999)
	if fit := even.Fits[0]; fit.ProposedRequests != 6 || fit.WithoutRequests != 6 {
		t.Errorf("%+v", fit)
	}
}

// Of a rule with several limits the share of subjects passes all of them.
func TestFitBySubjectLetsItsSharePassARule(t *testing.T) {
	t.Parallel()
	const limits = `domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: second, requests: 1, period: 1s}
      - {name: long, algorithm: fixed_window, requests: 1, period: 20s}
`
	for seed := range uint64(4) {
		log := bursty(seed, 3)
		f := fitsBy(t, replay.BySubject, limits, log, 0.5)
		var text bytes.Buffer
		if err := f.WriteFits(&text); err != nil {
			t.Fatal(err)
		}
		if got := wholly(t, text.String(), log); got < 2 {
			t.Errorf("seed %d: %d of 4 pass\n%s", seed, got, text.String())
		}
	}
}

// A report in between changes nothing for the next one.
func TestFitGoesOnAfterAReport(t *testing.T) {
	t.Parallel()
	log := bursty(1, 4)
	lines := bytes.SplitAfter(log, []byte("\n"))
	first, second := bytes.Join(lines[:200], nil), append(bytes.Clone(lines[0]), bytes.Join(lines[200:], nil)...)
	r, err := replay.New(replay.Options{Limits: rulesOf(t, limitOf("gcra", 2, 4)), Fit: 0.7})
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range [][]byte{first, second} {
		if err := r.Run(logOf(t, log, replay.Table(""))); err != nil {
			t.Fatal(err)
		}
		r.Report()
	}
	want := fitsBy(t, replay.BySubject, limitOf("gcra", 2, 4), log, 0.7)
	if got := textOf(t, r.Report()); !strings.Contains(textOf(t, want), "left out by user") || fitTable(got) != fitTable(textOf(t, want)) {
		t.Errorf("got\n%s\nwant\n%s", got, textOf(t, want))
	}
}

// fitTable is the part of a report that proposes limits.
func fitTable(text string) string {
	_, table, _ := strings.Cut(text, "\nsmallest limits")
	table, _, _ = strings.Cut(table, "# limits file")
	return table
}
