package steer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestImportIsIdempotent(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	file := filetest.Write(t, t.TempDir(), "customers.csv", clitest.Customers)
	for _, c := range []struct{ args, want string }{
		{"--dry-run", "6 rows of 4 subjects: would be 4 created, 0 replaced, 0 unchanged\n"},
		{"", "6 rows of 4 subjects: 4 created, 0 replaced, 0 unchanged\n"},
		{"", "6 rows of 4 subjects: 0 created, 0 replaced, 4 unchanged\n"},
		{"--json", `{"rows":6,"subjects":4,"created":0,"replaced":0,"unchanged":4,"deleted":0,"failed":0,"unknown":0,"over":0,"warned":0,"dry_run":false}` + "\n"},
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

// A malformed row is named with its place, and leaves out its subject alone.
func TestImportNamesMalformedRows(t *testing.T) {
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
standard input:4:16: limits: found "x/1s", where "x" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST][,BLOCK_FOR], such as month=5000000/30d, 100/1s,200 or login=5,10m
standard input:4:21: unlimited: found "yes"; allowed: true, false or nothing
standard input:4:25: until: found "soon"; allowed: a moment such as 2026-12-31T18:00:00Z, or a date such as 2026-12-31, which ends with that day in UTC
standard input:5:1: found 3 fields; allowed: 7, as in the header
standard input:6:17: until: found it without a part that it would end; allowed: both
standard input:7:1: found tenant=a of api again, the first is on line 2; allowed: its rows one below the other
standard input:8:18: numbers[1].limit: found the limit "month" twice; allowed: each limit once
standard input:12:15: limits: found "month=0.5", where "0.5" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST][,BLOCK_FOR], such as month=5000000/30d, 100/1s,200 or login=5,10m
`
	for _, dryRun := range []bool{true, false} {
		args, would, made := []string{"assign", "--from", "-"}, "", 2
		if dryRun {
			args, would, made = append(args, "--dry-run"), "would be ", 0
		}
		out, stderr, code := f.RunInput(t, text, args...)
		if code != cmdline.ExitError || out != "11 rows of 9 subjects: "+would+"2 created, 0 replaced, 0 unchanged, 7 failed\n" || stderr != want || len(f.Assignments) != made {
			t.Errorf("%s exits with %d: %s\n%s", args, code, out, stderr)
		}
	}
	if _, stderr, code := f.RunInput(t, "", "assign", "--from", "."); code != cmdline.ExitError || !strings.Contains(stderr, "is a directory") {
		t.Errorf("a folder exits with %d: %s", code, stderr)
	}
	for _, c := range []struct{ text, want string }{
		{"domain,entries,plan\napi,tenant=a,pro\napi,\"tenant=b,c\",pro\n", `standard input:3:5: entries: "tenant=b,c": found "c"; allowed: `},
		{"domain,entries,plan\napi,tenant=b,pro\napi,\"tenant=a,pro\napi,tenant=c,pro\n", "standard input:3:1: found no CSV: extraneous or missing \" in quoted-field"},
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
		if _, stderr, code := f.RunInput(t, c.text, "assign", "--from", "-"); code != cmdline.ExitError || !strings.Contains(stderr, c.want) {
			t.Errorf("%q exits with %d: %s", c.text, code, stderr)
		}
	}
}

// What a file says is not obeyed by the terminal.
func TestImportShowsControlCharacters(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	_, stderr, _ := f.RunInput(t, "domain,entries,plan\napi,tenant=\u202eevil,pro\napi,tenant=\u202eevil,pro\n", "assign", "--from", "-")
	if strings.Contains(stderr, "\u202e") || !strings.Contains(stderr, `'tenant=\u{202e}evil' of api again`) {
		t.Errorf("control characters: %q", stderr)
	}
}

func TestImportGoesInBatches(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	out, stderr, code := f.RunInput(t, clitest.ManyRows(150), "assign", "--from", "-")
	if code != 0 || out != "150 rows: 150 created, 0 replaced, 0 unchanged\n" || !slices.Equal(f.Batches, []int{64, 64, 22}) {
		t.Errorf("exits with %d: %s%s%v", code, out, stderr, f.Batches)
	}
}

// A daemon or a store that fails in the middle stops an import, which says what was made
// and where it stopped. Repeating it makes the rest.
func TestImportThatFailsInTheMiddle(t *testing.T) {
	const again = "\nno row after these was made; run it again: rows that are in force already stay as they are\n"
	f := clitest.StartFakeAdmin(t)
	f.FailAfter = 1
	out, stderr, code := f.RunInput(t, clitest.ManyRows(150), "assign", "--from", "-")
	if code != cmdline.ExitError || out != "128 rows: 64 created, 0 replaced, 0 unchanged, 64 may be in force or not\n" ||
		!strings.Contains(stderr, "standard input, lines 66 to 129: ") || !strings.HasSuffix(stderr, again) {
		t.Errorf("exits with %d: %s\n%s", code, out, stderr)
	}
	f.FailAfter = 0
	if out, stderr, code := f.RunInput(t, clitest.ManyRows(150), "assign", "--from", "-"); code != 0 || out != "150 rows: 86 created, 0 replaced, 64 unchanged\n" {
		t.Errorf("again it exits with %d: %s\n%s", code, out, stderr)
	}
	for _, c := range []struct {
		name, out, stderr string
		set               func(*clitest.FakeAdmin)
	}{
		{"a reply that is lost", "64 rows: 63 created, 0 replaced, 0 unchanged, 1 may be in force or not\n", "unknown: the store did not answer", func(f *clitest.FakeAdmin) { f.Unknown = "odd" }},
		{"a refusal of the store", "64 rows: 63 created, 0 replaced, 0 unchanged, 1 failed\n", "failed: refused by Redis, nothing was changed: READONLY You can't write", func(f *clitest.FakeAdmin) { f.Refused = "odd" }},
	} {
		f := clitest.StartFakeAdmin(t)
		c.set(f)
		rows := strings.Replace(clitest.ManyRows(150), "\n", "\napi,tenant=odd,odd\n", 1)
		out, stderr, code := f.RunInput(t, rows, "assign", "--from", "-")
		if want := "standard input:2: tenant=odd of api: " + c.stderr; code != cmdline.ExitError || out != c.out || !strings.HasPrefix(stderr, want) || !strings.HasSuffix(stderr, again) {
			t.Errorf("%s: exits with %d: %s\n%s", c.name, code, out, stderr)
		}
	}
}

// A row that the daemon refuses keeps no other back.
func TestImportNamesRefusedRows(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	out, stderr, code := f.RunInput(t, "domain,entries,plan\napi,tenant=a,none-such\napi,tenant=b,pro\n", "assign", "--from", "-")
	if code != cmdline.ExitError || out != "2 rows: 1 created, 0 replaced, 0 unchanged, 1 failed\n" ||
		stderr != "standard input:2: tenant=a of api: refused: plan: found none-such; allowed: free, pro\n" {
		t.Errorf("exits with %d: %s\n%s", code, out, stderr)
	}
}

// What assignments exports, assign imports as it was, into an empty daemon too.
func TestExportIsReadBack(t *testing.T) {
	for _, format := range []string{"csv", "jsonl"} {
		t.Run(format, func(t *testing.T) {
			f := clitest.StartFakeAdmin(t)
			for _, a := range clitest.HostileAssignments() {
				f.Make(t, a)
			}
			exported, stderr, code := f.Run(t, "assignments", "--export", format)
			if code != 0 {
				t.Fatalf("the export exits with %d: %s", code, stderr)
			}
			n := len(clitest.HostileAssignments())
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
