package replay_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// run replays a log and returns the error and the warnings.
func run(t testing.TB, o replay.Options, f replay.Format, log io.Reader) (report *replay.Report, warnings []string, err error) {
	t.Helper()
	o.Warn = func(s string) { warnings = append(warnings, s) }
	r, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := replay.NewLog("test.log", io.NopCloser(log), f, replay.DefaultWindow)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Run(l); err != nil {
		return nil, warnings, err
	}
	return r.Report(), warnings, nil
}

// smallLog is a log of a few decisions.
func smallLog(t testing.TB) []byte {
	r := newRecorder(t, allAlgorithms)
	for range 5 {
		r.after(1e6)
		r.take(asking("token=a", 1))
	}
	return r.log
}

// A line that was torn by a kill is passed over with its number, at the end and in
// the middle.
func TestTornLinesArePassedOver(t *testing.T) {
	t.Parallel()
	log := smallLog(t)
	torn := log[:len(log)-20]
	report, warnings, err := run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(torn))
	if err != nil || report.Requests != 4 || report.Unread != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], "test.log:6: ") || !strings.Contains(warnings[0], "not written to its end") {
		t.Errorf("%v, %d requests, %d unread, %q", err, report.Requests, report.Unread, warnings)
	}
	report, warnings, err = run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(append(bytes.Clone(torn), smallLog(t)...)))
	if err != nil || report.Requests != 9 || report.Unread != 1 || !strings.Contains(warnings[0], "test.log:6: ") {
		t.Errorf("%v, %d requests, %d unread, %q", err, report.Requests, report.Unread, warnings)
	}
}

// What is wrong is reported with the line, what was found and what is allowed.
func TestBadLinesAreTold(t *testing.T) {
	t.Parallel()
	log := string(smallLog(t))
	for bad, says := range map[string]string{
		strings.Repeat("\x00", 1000):                    "byte 1",
		strings.Repeat(`{"a":`, 20_000):                 "max depth",
		strings.Repeat("[", 20_000) + "]":               "max depth",
		`{"v":1,"time":1e300}`:                          "time",
		`{"v":1,"time":"1e300"}`:                        "time",
		`{"v":9}`:                                       "newer",
		`{"v":1,"time":"2026-11-23T00:00:00.000000Z","`: "ends within",
	} {
		_, warnings, err := run(t, replay.Options{}, replay.Decisions(), strings.NewReader(log+bad+"\n"+log))
		if err != nil || len(warnings) != 1 && !strings.Contains(warnings[len(warnings)-1], "older") || !strings.Contains(warnings[0], "test.log:7: ") || !strings.Contains(warnings[0], says) || !strings.Contains(warnings[0], "; allowed: ") {
			t.Errorf("%.40q: %v, %q", bad, err, warnings)
		}
	}
	for bad, says := range map[string]string{
		"not json\n": "test.log:1: byte", strings.Repeat("x\n", 3000): "test.log:1: ", log + strings.Repeat("x\n", 3000): "this is line 1,001 that cannot be read",
		strings.Join(strings.Split(log, "\n")[1:], "\n"):        "test.log:1: found no limits in force here",
		strings.Replace(log, "requests: 7,", "requests: 8,", 1): "fingerprint",
		strings.Replace(log, "domain: d\\n", "domain: [\\n", 1): "do not load",
	} {
		if _, _, err := run(t, replay.Options{}, replay.Decisions(), strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, which does not say %q", bad, err, says)
		}
	}
}

// endless is n bytes of a line that does not end.
func endless(n int64) io.Reader { return io.LimitReader(repeated(strings.Repeat("x", 1<<16)), n) }

type repeated string

func (r repeated) Read(b []byte) (int, error) { return copy(b, r), nil }

// A line of a gigabyte is refused with its number, and so is one that comes out of a
// small compressed file; both take bounded memory.
func TestEndlessLinesAreRefused(t *testing.T) {
	const maxTaken = 512 << 20 // of all memory that was ever taken: a line's doubles up to 64 MiB
	packed := func(w io.WriteCloser, to *bytes.Buffer) io.Reader {
		if _, err := io.Copy(w, endless(80<<20)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return to
	}
	var gz, zst bytes.Buffer
	zw, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := gzip.NewWriterLevel(&gz, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]io.Reader{
		"plain": endless(1 << 30), "gzip": packed(fast, &gz), "zstd": packed(zw, &zst),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := run(t, replay.Options{}, replay.Decisions(), log)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "test.log:1: found a line of more than 67,108,864 bytes") {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > maxTaken {
			t.Errorf("%s: it took %d bytes", name, took)
		}
	}
}

// Compressed logs are known by their content, and one that is cut off is reported.
func TestCompressedLogsAreRead(t *testing.T) {
	t.Parallel()
	log := smallLog(t)
	var gz, zst bytes.Buffer
	zw, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		io.WriteCloser
		packed *bytes.Buffer
	}{{gzip.NewWriter(&gz), &gz}, {zw, &zst}} {
		if _, err := p.Write(log); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		cut := p.packed.Bytes()[:p.packed.Len()-9]
		if report, _, err := run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(p.packed.Bytes())); err != nil || report.Comparison.Equal != 5 {
			t.Errorf("%v: %+v", err, report)
		}
		if _, _, err := run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(cut)); err == nil || !strings.Contains(err.Error(), "test.log:") {
			t.Errorf("cut off: %v", err)
		}
	}
}

// Lines that are out of order within the window are put in order, and others are
// reported.
func TestLinesArePutInOrder(t *testing.T) {
	t.Parallel()
	lines := bytes.SplitAfter(randomTrace(t, 3, 2000).log, []byte("\n"))
	for i := 1; i+20 < len(lines)/2; i += 20 { // the reload is in the middle
		for j := range 9 {
			lines[i+j], lines[i+18-j] = lines[i+18-j], lines[i+j]
		}
	}
	report, warnings, err := run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(bytes.Join(lines, nil)))
	if err != nil || len(warnings) > 0 || report.Comparison.Different > 0 {
		t.Errorf("%v, %q, %+v", err, warnings, report.Comparison)
	}
	l, err := replay.NewLog("test.log", io.NopCloser(bytes.NewReader(bytes.Join(lines, nil))), replay.Decisions(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var late []string
	r, err := replay.New(replay.Options{Warn: func(s string) { late = append(late, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(l); err != nil || len(late) == 0 || !strings.Contains(late[0], "longer --window") || len(late) > 10 {
		t.Errorf("%v, %q", err, late)
	}
}

// Logs of several daemons are one by time.
func TestLogsAreMerged(t *testing.T) {
	t.Parallel()
	lines := bytes.SplitAfter(randomTrace(t, 4, 2000).log, []byte("\n"))
	logs := [3][]byte{lines[0], lines[0], lines[0]}
	for i, line := range lines[1:] {
		logs[i*i%3] = append(logs[i*i%3][:len(logs[i*i%3]):len(logs[i*i%3])], line...)
	}
	k := replayed(t, replay.Options{Warn: func(s string) { t.Error(s) }}, logs[:]...).Comparison
	if k.Different > 0 || k.Equal < 1500 {
		t.Errorf("%+v", k)
	}
}

// More keys than there is room for end a replay, and expired ones are none.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	table := func(step int) io.Reader {
		var b bytes.Buffer
		fmt.Fprintln(&b, "time,fixed")
		for i := range 5000 {
			fmt.Fprintf(&b, "%d,u%d\n", began+int64(i*step), i)
		}
		return &b
	}
	o := replay.Options{Limits: rulesOf(t, allAlgorithms), MaxKeys: 1000}
	if _, _, err := run(t, o, replay.Table("d"), table(10_000)); err != nil {
		t.Errorf("100 keys a second: %v", err)
	}
	_, _, err := run(t, o, replay.Table("d"), table(10))
	var full *replay.FullError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "test.log:1002: ") || !strings.Contains(err.Error(), "--max-keys") {
		t.Errorf("5000 keys at once: %v", err)
	}
}

// A give-back has the numbers that its request brought.
func TestGiveBacksOfARequestsOwnNumbers(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 1, 0))
	own := asking("user=a", 3)
	own.Own = decide.Override{Set: true, Requests: 5, Period: time.Second, Names: &decide.OwnNames{Whole: "numbers"}}
	r.giveBack(r.take(own))
	r.take(own)
	report, warnings, err := run(t, replay.Options{}, replay.Decisions(), bytes.NewReader(r.log))
	if err != nil || len(warnings) != 0 || report.Comparison.Equal != 2 {
		t.Errorf("%v, %q, %+v", err, warnings, report.Comparison)
	}
}

// Callers choose domains: what no rule is for is reported of the first ones, and of all others
// together.
func TestDomainsAreBounded(t *testing.T) {
	t.Parallel()
	log := bytes.NewBufferString("time,domain,user\n")
	for i := range 50_000 {
		fmt.Fprintf(log, "%d,made up %d,u\n", began+int64(i), i)
	}
	fmt.Fprintf(log, "%d,d,u\n", began+50_000)
	report, _, err := run(t, replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 1, 0))}, replay.Table(""), log)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(report.Rules); n != 1002 || report.Rules[0].Domain != "" || report.Rules[0].After.Asked != 49_000 || report.Subjects.After.Asked != 50_001 {
		t.Errorf("%d rules, %+v", n, report.Rules[0])
	}
	if text := textOf(t, report); !strings.Contains(text, "\nother domains\n  RULE       LIMIT       ASKED   DENIED\n  (no rule)              49,000  0 (0%)\n") {
		t.Errorf("%.500s", text)
	}
}

// Subjects are as long as callers like: those that are followed have 200 bytes in the
// mean, and the denials of others are counted.
func TestTextsOfSubjectsAreBounded(t *testing.T) {
	t.Parallel()
	log := bytes.NewBufferString("time,domain,user\n")
	for i := range 50 {
		fmt.Fprintf(log, "%d,d,%d%s\n", began+int64(i), i, strings.Repeat("x", 1000))
	}
	report, _, err := run(t, replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 0, 0)), MaxKeys: 100}, replay.Table(""), log)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Denied) != 19 || report.Uncounted != 31 || report.Subjects.After.Denied != 50 {
		t.Errorf("%d are followed, %d denials are not, of %+v", len(report.Denied), report.Uncounted, report.Subjects)
	}
}
