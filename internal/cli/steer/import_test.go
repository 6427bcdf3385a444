package steer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/cli/rowstest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestImportIsIdempotent(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	file := filetest.Write(t, t.TempDir(), "customers.csv", rowstest.Customers)
	for _, c := range []struct{ args, want string }{
		{"--dry-run", "6 rows of 4 subjects: would be 4 created, 0 replaced, 0 unchanged\n"},
		{"", "6 rows of 4 subjects: 4 created, 0 replaced, 0 unchanged\n"},
		{"", "6 rows of 4 subjects: 0 created, 0 replaced, 4 unchanged\n"},
		{"--json", `{"rows":6,"subjects":4,"created":0,"replaced":0,"unchanged":4,"deleted":0,"refused":0,"malformed":0,"over":0,"unknown":0,"not_reached":0,"warned":0,"dry_run":false}` + "\n"},
	} {
		out, stderr, code := f.Run(t, append([]string{"assign", "--from", file}, strings.Fields(c.args)...)...)
		if code != 0 || out != c.want || stderr != "" {
			t.Errorf("assign --from %s exits with %d: %q\n%s", c.args, code, stderr, out)
		}
	}
	if a := f.Assignments[clitest.KeyOf("api", []*ratelimitv1.Entry{{Key: "tenant", Value: "acme"}, {Key: "region", Value: "eu"}})]; len(a.GetNumbers()) != 2 {
		t.Errorf("the second row gave %v", a)
	}
}

// A column that is not there leaves its part, and an empty cell under a header removes it
// from the base, except a block. What lies on top stays.
func TestImportLeavesAndRemovesParts(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=a", "tenant=b", "--plan", "pro", "--unlimited", "--limit", "month=5", "--limit", "day=7", "--reason", "deal")
	f.Run(t, "block", "--domain", "api", "tenant=a", "tenant=b")
	f.Run(t, "assign", "--domain", "api", "tenant=a", "--limit", "month=9", "--until", "2254-12-31", "--reason", "relief")
	const relief = "; until 2254-12-31 9 a month, relief"
	for _, c := range []struct{ text, summary, want string }{
		{"entries,plan\ntenant=a,free\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", "blocked, unlimited, plan free, 7 a day, 5 a month" + relief},
		{"entries,limits,blocked,reason\ntenant=a,month=6,,\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", "blocked, unlimited, plan free, 6 a month" + relief},
		{"entries,unlimited,plan\ntenant=a,,free\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", "blocked, plan free, 6 a month" + relief},
		{"entries,plan,limits,until,reason\ntenant=a,pro,month=7;day=8,,\ntenant=a,,month=8,2254-12-30,more\n", "2 rows of 1 subject: 0 created, 1 replaced, 0 unchanged\n",
			"blocked, plan pro, 8 a day, 7 a month" + relief + "; until 2254-12-30 8 a month, more"},
		{"entries,plan,limits,until\ntenant=a,,month=8,2254-12-31\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", "blocked, plan pro, 8 a day, 7 a month; until 2254-12-31 8 a month"},
		{"entries,plan,limits,until\ntenant=a,,month=8,2020-12-31\ntenant=b,pro,,\n", "2 rows: 0 created, 1 replaced, 0 unchanged, 1 over already and left out\n", ""},
		{"entries,plan,limits,blocked\ntenant=a,,,false\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", "blocked; until 2254-12-31 8 a month"},
		{"entries,plan,limits,blocked\ntenant=a,,,\n", "1 row: 0 created, 0 replaced, 1 unchanged\n", "blocked; until 2254-12-31 8 a month"},
		{`{"entries":[{"key":"tenant","value":"b"}],"plan":"free"}` + "\n", "1 row: 0 created, 1 replaced, 0 unchanged\n", ""},
		{"entries,plan\ntenant=c,free\n", "1 row: 1 created, 0 replaced, 0 unchanged\n", ""},
		{"entries,plan\ntenant=c,\n", "1 row: 0 created, 0 replaced, 0 unchanged, 1 deleted\n", ""},
	} {
		out, stderr, code := f.RunInput(t, c.text, "assign", "--from", "-", "--domain", "api")
		if code != 0 || out != c.summary || stderr != "" {
			t.Errorf("%q exits with %d: %s%s", c.text, code, stderr, out)
		}
		if c.want == "" {
			continue
		}
		a := f.Assignments[clitest.KeyOf("api", []*ratelimitv1.Entry{{Key: "tenant", Value: "a"}})]
		if got := assigntext.Describe(a, time.Date(2026, 6, 22, 0, 0, 0, 0, time.UTC)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
	b := f.Assignments[clitest.KeyOf("api", []*ratelimitv1.Entry{{Key: "tenant", Value: "b"}})]
	if got := assigntext.Describe(b, time.Now()); got != `blocked, plan free` {
		t.Errorf("a line of JSON leaves %s", got)
	}
}

func TestImportReadsStandardInputAndTheDomainOfItsFlag(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	out, stderr, code := f.RunInput(t, "entries,plan\ntenant=a, pro\n tenant=b,pro\n", "assign", "--from", "-", "--domain", "api")
	if code != 0 || out != "2 rows: 2 created, 0 replaced, 0 unchanged\n" {
		t.Errorf("CSV: %d %q %s", code, stderr, out)
	}
	lines := `{"entries":[{"key":"tenant","value":"a"}],"plan":"pro"}` + "\n\n" + `{"domain":"login","entries":[{"key":"tenant","value":"a"}],"blocked":true,"made_by":"x","etag":"7"}` + "\n"
	out, stderr, code = f.RunInput(t, lines, "assign", "--from", "-", "--domain", "api")
	if code != 0 || out != "2 rows: 1 created, 0 replaced, 1 unchanged\n" {
		t.Errorf("JSON lines: %d %q %s", code, stderr, out)
	}
}

func TestImportTellsAllMalformedRows(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	const text = `domain,entries,plan,limits,unlimited,until,reason
api,tenant=a,pro,,,,
,tenant=b,pro,,,,
api,tenant,pro,x/1s,yes,soon,
api,tenant=c,pro
api,tenant=d,,,,2254-12-31,nothing
api,tenant=a,free,,,,
api,tenant=e,pro,month=1;month=2,true,,
api,tenant=f,pro,,,,
api,tenant=f,,month=3,,2254-12-31,
api,tenant=g,pro,,,,
api,tenant=g,,month=0.5,,2254-12-31,
`
	const want = `standard input:3:1: domain: found an empty text; allowed: the name of a domain
standard input:4:5: entries: found "tenant"; allowed: KEY=VALUE[,KEY=VALUE] and so on
standard input:4:16: limits: found "x/1s", where "x" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST], such as month=5000000/30d or 100/1s,200
standard input:4:21: unlimited: found "yes"; allowed: true, false or nothing
standard input:4:25: until: found "soon"; allowed: a moment such as 2026-12-31T18:00:00Z, or a date such as 2026-12-31, which ends with that day in UTC
standard input:5:1: found 3 fields; allowed: 7, as in the header
standard input:6:17: until: found it without a part that it would end; allowed: both
standard input:7:1: found tenant=a of api again, the first is on line 2; allowed: its rows one below the other
standard input:8:18: numbers[1].limit: found the limit "month" twice; allowed: each limit once
standard input:12:15: limits: found "month=0.5", where "0.5" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST], such as month=5000000/30d or 100/1s,200
`
	out, stderr, code := f.RunInput(t, text, "assign", "--from", "-")
	if code != exit.Error || out != "" || stderr != want+"ratelimitd: 7 of 9 subjects are malformed, so nothing was done; mend them, or leave them out with --skip-bad\n" || len(f.Batches) > 0 {
		t.Errorf("exits with %d: %s\n%s%v", code, out, stderr, f.Batches)
	}
	out, stderr, code = f.RunInput(t, text, "assign", "--from", "-", "--skip-bad")
	if code != 0 || out != "11 rows of 9 subjects: 2 created, 0 replaced, 0 unchanged, 7 malformed and left out\n" || stderr != want {
		t.Errorf("--skip-bad exits with %d: %s\n%s", code, out, stderr)
	}
	if _, stderr, code := f.RunInput(t, "", "assign", "--from", "."); code != exit.Error || !strings.Contains(stderr, "--from: found the folder .; allowed: a file of CSV") {
		t.Errorf("a folder exits with %d: %s", code, stderr)
	}
	for _, c := range []struct{ text, want string }{
		{"domain,entries,plan\napi,tenant=a,pro\napi,\"tenant=b,c\",pro\n", `standard input:3:5: entries: "tenant=b,c": found "c"; allowed: `},
		{"domain,entries,plan\napi,tenant=a,pro\napi,tenant,pro\n", "1 of 2 rows is malformed, so nothing was done; mend it, or leave it out with --skip-bad\n"},
		{"", "standard input:1:1: found nothing"},
		{"api,tenant=a,pro\n", `standard input:1:1: found the column "api"; allowed: a header of the columns domain, entries, plan,`},
		{"entries;plan\n", `standard input:1:1: found the column "entries;plan"; allowed: a header of the columns domain, entries, plan, limits, starts, time_zone, unlimited, blocked, until, reason, each once, parted by commas`},
		{"domain,plan\n", "standard input:1:1: found a header without entries or domain"},
		{"entries,plan\n", "standard input:1:1: found a header without entries or domain"},
		{"domain,entries,entries\n", `standard input:1:16: found the column "entries"`},
		{"domain,\"entries\n", "standard input:1:17: found no CSV"},
		{"{\n", "standard input:1:1: found no assignment: unexpected EOF"},
		{"domain,entries,until,plan\napi,a=b,2255-12-31,pro\n", "standard input:2:9: until: found 2256-01-01T00:00:00Z; allowed: 1970-01-01T00:00:00Z to 2255-06-05"},
		{`{"domain":"api","entry":[]}`, `standard input:1:17: found no assignment: `},
		{`{"domain":"api","entries":[{"key":"a"}]}`, "standard input:1:1: assignment: found no part to set or to remove"},
		{"domain,entries,reason\n", "standard input:1:1: found a header without a part of assignments; allowed: one or more of plan, limits, starts, time_zone, unlimited and blocked"},
		{"domain,entries,blocked\napi,a=b,\n", "standard input:2:1: assignment: found no part to set or to remove"},
		{"domain,entries,plan,plan_until\napi,a=b,,2254-12-31\n", `standard input:1:21: found the column "plan_until"; allowed: a header of the columns domain, `},
		{"domain,entries,plan,until\napi,a=b,pro,\napi,a=b,free,\n", "standard input:3:1: found a=b of api again without until, the first is on line 2; allowed: each once, and below it rows with until"},
		{"domain,entries,plan,until\napi,a=b,pro,2254-12-31\napi,a=b,free,\n", "standard input:3:1: found a=b of api again without until"},
	} {
		if _, stderr, code := f.RunInput(t, c.text, "assign", "--from", "-"); code != exit.Error || !strings.Contains(stderr, c.want) {
			t.Errorf("%q exits with %d: %s", c.text, code, stderr)
		}
	}
}

// A row that does not end takes no more memory than a row may.
func TestImportEndsAtALongRow(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for name, c := range map[string]struct{ from, want string }{
		"a quote that is not closed": {"domain,entries,plan\napi,tenant=a,pro\napi,\"tenant=b,pro\n", "standard input:3:1: found a row of more than 1048576 bytes"},
		"a line without an end":      {"domain,entries,plan\napi,tenant=a,", "standard input:2:1: found a row of more than 1048576 bytes"},
		"a header without an end":    {"domain,", "found a row of more than 1048576 bytes"},
	} {
		_, stderr, code := f.RunInput(t, c.from+strings.Repeat("x", 2<<20), "assign", "--from", "-")
		if code != exit.Error || !strings.Contains(stderr, c.want) || len(f.Batches) > 0 {
			t.Errorf("%s: exits with %d: %.300s", name, code, stderr)
		}
	}
	// What a file says is not obeyed by the terminal.
	_, stderr, _ := f.RunInput(t, "domain,entries,plan\napi,tenant=\u202eevil,pro\napi,tenant=\u202eevil,pro\n", "assign", "--from", "-")
	if strings.Contains(stderr, "\u202e") || !strings.Contains(stderr, `'tenant=\u{202e}evil' of api again`) {
		t.Errorf("control characters: %q", stderr)
	}
}

func TestImportGoesInBatches(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	out, stderr, code := f.RunInput(t, clitest.ManyRows(2500), "assign", "--from", "-")
	if code != 0 || out != "2500 rows: 2500 created, 0 replaced, 0 unchanged\n" || !slices.Equal(f.Batches, []int{1000, 1000, 500}) {
		t.Errorf("exits with %d: %s%s%v", code, out, stderr, f.Batches)
	}
}

// Where the answer to a batch would be too long it is put in parts.
func TestImportPutsFewerAtOnce(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.MaxPuts = 300
	out, stderr, code := f.RunInput(t, clitest.ManyRows(1100), "assign", "--from", "-")
	if code != 0 || out != "1100 rows: 1100 created, 0 replaced, 0 unchanged\n" || !slices.Equal(f.Batches, []int{250, 250, 250, 250, 100}) {
		t.Errorf("exits with %d: %s%s%v", code, out, stderr, f.Batches)
	}
	f.MaxPuts = 10
	if out, stderr, code := f.RunInput(t, clitest.ManyRows(1000), "assign", "--from", "-"); code != exit.Error || !strings.Contains(stderr, "put fewer at once") {
		t.Errorf("exits with %d: %s%s", code, out, stderr)
	}
}

// What fails in the middle says what was done, and is mended by doing it again.
func TestImportThatFailsInTheMiddle(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.FailAfter = 1
	out, stderr, code := f.RunInput(t, clitest.ManyRows(2500), "assign", "--from", "-")
	if code != exit.Error || out != "2500 rows: 1000 created, 0 replaced, 0 unchanged, 1000 may be in force or not, 500 not reached\n" ||
		!strings.Contains(stderr, "standard input, lines 1002 to 2001: ") || !strings.HasSuffix(stderr, "\nnot all of it was done; run it again: rows that are in force already stay as they are\n") {
		t.Errorf("exits with %d: %s\n%s", code, out, stderr)
	}
	f.FailAfter = 0
	if out, stderr, code := f.RunInput(t, clitest.ManyRows(2500), "assign", "--from", "-"); code != 0 || out != "2500 rows: 1500 created, 0 replaced, 1000 unchanged\n" {
		t.Errorf("again it exits with %d: %s\n%s", code, out, stderr)
	}
}

func TestImportTellsOfRefusedAndUnknownRows(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Unknown = "lost"
	out, stderr, code := f.RunInput(t, "domain,entries,plan\napi,tenant=a,none-such\napi,tenant=b,pro\n", "assign", "--from", "-")
	if code != exit.Error || out != "2 rows: 1 created, 0 replaced, 0 unchanged, 1 refused\n" ||
		stderr != "standard input:2: tenant=a of api: refused: plan: found none-such; allowed: free, pro\n" {
		t.Errorf("exits with %d: %s\n%s", code, out, stderr)
	}
	out, stderr, code = f.RunInput(t, "domain,entries,plan\napi,tenant=a,lost\napi,tenant=b,pro\n", "assign", "--from", "-")
	if code != exit.Error || out != "2 rows: 0 created, 0 replaced, 1 unchanged, 1 may be in force or not\n" || !strings.Contains(stderr, "the store did not answer for 1 row\n") {
		t.Errorf("exits with %d: %s\n%s", code, out, stderr)
	}
}

// Rows for which the store does not answer are put again: it does no harm.
func TestImportTriesAgain(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Unknown, f.Answers = "lost", 1
	out, stderr, code := f.RunInput(t, "domain,entries,plan\napi,tenant=a,lost\napi,tenant=b,pro\n", "assign", "--from", "-")
	if code != 0 || out != "2 rows: 2 created, 0 replaced, 0 unchanged\n" || stderr != "" || !slices.Equal(f.Batches, []int{2, 1}) {
		t.Errorf("exits with %d: %s\n%s%v", code, out, stderr, f.Batches)
	}
}

// Rows that the store refuses for a moment are put again. Where it stays, the import ends
// and says why, and that they are as they were.
func TestImportTellsWhatTheStoreRefuses(t *testing.T) {
	const rows = "domain,entries,plan\napi,tenant=a,no-room\napi,tenant=b,pro\n"
	f := clitest.StartFakeAdmin(t)
	f.Refused, f.Temporary, f.Answers = "no-room", true, 2
	out, stderr, code := f.RunInput(t, rows, "assign", "--from", "-")
	if code != 0 || out != "2 rows: 2 created, 0 replaced, 0 unchanged\n" || stderr != "" || !slices.Equal(f.Batches, []int{2, 1, 1}) {
		t.Errorf("exits with %d: %s\n%s%v", code, out, stderr, f.Batches)
	}
	f = clitest.StartFakeAdmin(t)
	f.Refused, f.Temporary, f.Answers = "no-room", true, 4 // one more than tells of it
	out, stderr, code = f.RunInput(t, rows, "assign", "--from", "-")
	if code != 0 || out != "2 rows: 2 created, 0 replaced, 0 unchanged\n" || !strings.HasSuffix(stderr, "READONLY You can't write; tries again for up to 1m\n") {
		t.Errorf("a refusal that lasts: exits with %d: %s\n%s", code, out, stderr)
	}
	f = clitest.StartFakeAdmin(t)
	f.Refused = "no-room"
	out, stderr, code = f.RunInput(t, rows, "assign", "--from", "-")
	if code != exit.Error || out != "2 rows: 1 created, 0 replaced, 0 unchanged, 1 not reached\n" || !slices.Equal(f.Batches, []int{2}) ||
		!strings.Contains(stderr, "standard input, line 2: 1 row: refused by Redis, nothing was changed: READONLY") {
		t.Errorf("exits with %d: %s\n%s%v", code, out, stderr, f.Batches)
	}
}

// What assignments exports, assign imports as it was, into an empty daemon too.
func TestExportIsReadBack(t *testing.T) {
	for _, format := range []string{"csv", "jsonl"} {
		t.Run(format, func(t *testing.T) {
			f := clitest.StartFakeAdmin(t)
			for _, a := range rowstest.Hostile() {
				f.Make(t, a)
			}
			exported, stderr, code := f.Run(t, "assignments", "--export", format)
			if code != 0 {
				t.Fatalf("the export exits with %d: %s", code, stderr)
			}
			n := len(rowstest.Hostile())
			if out, stderr, code := f.RunInput(t, exported, "assign", "--from", "-"); code != 0 || !strings.HasSuffix(out, fmt.Sprintf(": 0 created, 0 replaced, %d unchanged\n", n)) {
				t.Errorf("the import exits with %d: %s%s\n%s", code, out, stderr, exported)
			}
			empty := clitest.StartFakeAdmin(t)
			if out, stderr, code := empty.RunInput(t, exported, "assign", "--from", "-"); code != 0 || !strings.HasSuffix(out, fmt.Sprintf(": %d created, 0 replaced, 0 unchanged\n", n)) {
				t.Errorf("the import into an empty daemon exits with %d: %s%s", code, out, stderr)
			}
			if again, _, _ := empty.Run(t, "assignments", "--export", format); again != exported {
				t.Errorf("exported again it is\n%s\nand was\n%s", again, exported)
			}
		})
	}
}
