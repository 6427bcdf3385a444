package integration

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// oddUser is what a caller may send as a value, and oddSubject how it is written.
const (
	oddUser    = "\x1b[2J\r\n\x00\u009b\u202e\u200b\u3164\U000e0041\\\"',=/ C:\\temp\\u{41}"
	oddSubject = `user=\u{1b}[2J\u{d}\u{a}\u{0}\u{9b}\u{202e}\u{200b}\u{3164}\u{e0041}\\"'\,=/ C:\\temp\\u{41}`
	oddReason  = "x\u202e C:\\temp\\u{41}"
)

// inShell is a word as a shell reads it.
func inShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// onlyVisible fails if people do not see all of a text of several lines.
func onlyVisible(t testing.TB, what, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && spelling.IsHidden(r) }) || !utf8.ValidString(text) {
		t.Errorf("%s has what people do not see: %q", what, text)
	}
}

// Whatever a caller sends, people see all of it, and what they see can be pasted into any
// command and means the same.
func TestSubjectsOfAnyCharactersAreSteered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	decisions := filepath.Join(dir, "decisions.jsonl")
	d := start(t, steered(t, yearlyOf(3), "--assignments-path", filepath.Join(dir, "assignments"), "--decisions-path", decisions)...)
	s := oddSteering{t: t, d: d}
	s.denied()
	s.pasted(decisions)
	s.blocked()
	s.moved()
	onlyVisible(t, "the log of the daemon", d.logText())
}

// oddSteering steers the odd user.
type oddSteering struct {
	t *testing.T
	d *daemon
}

// run runs a command that succeeds, and all of whose output people see.
func (s *oddSteering) run(input string, args ...string) string {
	s.t.Helper()
	out, stderr, code := s.d.steer(input, args...)
	if code != 0 {
		s.t.Fatalf("%q exits with %d: %s", args, code, stderr)
	}
	onlyVisible(s.t, args[0], out+stderr)
	return out
}

func (s *oddSteering) shows(out string, wanted ...string) {
	s.t.Helper()
	for _, want := range wanted {
		if !strings.Contains(out, want) {
			s.t.Errorf("it lacks %s:\n%s", want, out)
		}
	}
}

// denied has the user use up a limit.
func (s *oddSteering) denied() {
	s.t.Helper()
	for i := range 4 {
		if got := ok(s.d.ask("api", 1, "user="+oddUser)); got != (i < 3) {
			s.t.Fatalf("request %d passes: %t", i, got)
		}
	}
}

// pasted has each command that shows the user show what all commands take.
func (s *oddSteering) pasted(decisions string) {
	t, word := s.t, inShell(oddSubject)
	s.shows(s.run("", "top"), word)
	s.shows(s.run("", "explain", "--domain", "api", oddSubject), "─ "+word+": denied")
	s.shows(s.run("", "inspect", "--domain", "api", oddSubject), word)
	s.shows(s.run("", "take", "--address", s.d.grpc, "--domain", "api", "--peek", "user=other", "user=a\\\x1b"), `user=a\u{1b}  `)
	var text []byte
	asynctest.Eventually(t, "the log has all", func() (hasAll bool) {
		var err error
		text, err = os.ReadFile(decisions)
		return err == nil && bytes.Count(text, []byte("\n")) >= 5 // with that of the limits
	})
	onlyVisible(t, "the log of decisions", string(text))
	onlyVisible(t, "replay", s.run("", "replay", decisions))
	page := filepath.Join(t.TempDir(), "page.html")
	s.run("", "replay", decisions, "--html", page)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	onlyVisible(t, "the page of replay", string(text))
	s.shows(string(text), `\u{1b}[2J`)
}

// blocked resets the user's limit and blocks the user.
func (s *oddSteering) blocked() {
	t, word := s.t, inShell(oddSubject)
	s.shows(s.run("", "reset", "--domain", "api", oddSubject), "reset  "+word+" of api: ")
	if !ok(s.d.ask("api", 1, "user="+oddUser)) {
		t.Error("the limit is not full again")
	}
	s.shows(s.run("", "block", "--domain", "api", oddSubject, "--reason", oddReason), "created    "+word+" of api: blocked")
	if ok(s.d.ask("api", 1, "user="+oddUser)) {
		t.Error("the block does not hold")
	}
	s.shows(s.run("", "assignments"), word, "blocked")
	s.shows(s.run("", "assignments", "--prefix", `user=\u{1b}[2J`), word)
	s.shows(s.run("", "audit", "--domain", "api", oddSubject), word+" of api: reset", word+" of api: blocked")
	s.run("", "unblock", "--domain", "api", oddSubject)
	if !ok(s.d.ask("api", 1, "user="+oddUser)) {
		t.Error("the block does not end")
	}
}

// moved takes what is assigned out as a file, ends it, and takes it in again.
func (s *oddSteering) moved() {
	t := s.t
	s.run("", "assign", "--domain", "api", oddSubject, "--limit", "1000", "--unlimited", "--reason", oddReason)
	for _, format := range []string{"csv", "jsonl"} {
		file := s.run("", "assignments", "--export", format)
		if format == "csv" {
			rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
			if err != nil || len(rows) != 2 || rows[1][1] != oddSubject || rows[1][9] != `x\u{202e} C:\temp\u{5c}u{41}` {
				t.Errorf("rows %q: %v", rows, err)
			}
		}
		s.shows(s.run("", "unassign", "--domain", "api", oddSubject), "deleted    "+inShell(oddSubject))
		s.shows(s.run(file, "assign", "--from", "-"), "1 row: 1 created")
		s.shows(s.run(file, "assign", "--from", "-"), "1 row: 0 created, 0 replaced, 1 unchanged")
		if again := s.run("", "assignments", "--export", format); again != file {
			t.Errorf("%s: got\n%s\nwant\n%s", format, again, file)
		}
	}
}
