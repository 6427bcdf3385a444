package steer_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
)

func TestAssignAndUnassign(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for _, c := range []struct {
		args, want string
		before     string // of what replaces something
		code       int
	}{
		{args: "assign --domain api tenant=acme --plan free", want: "created    tenant=acme of api: plan free"},
		{args: "assign --domain api tenant=acme --plan free", want: "unchanged  tenant=acme of api: plan free"},
		{args: "assign --domain api tenant=acme --plan pro --dry-run", want: "would be replaced   tenant=acme of api: plan pro", before: "plan free"},
		{args: "assign --domain api tenant=acme --plan pro --limit month=5000000/30d --limit 100/1s,200 --reason contract",
			want: "replaced   tenant=acme of api: plan pro, limit 100 in 1s with burst 200, limit month 5,000,000 in 30d, contract", before: "plan free"},
		{args: "assign --domain api tenant=acme --plan pro --only --reason contract", want: "replaced   tenant=acme of api: plan pro, contract",
			before: "plan pro, limit 100 in 1s with burst 200, limit month 5,000,000 in 30d, contract"},
		{args: "assign --domain api tenant=acme --plan pro --only", want: "unchanged  tenant=acme of api: plan pro, contract"},
		{args: "assign --domain api tenant=a tenant=b --unlimited", want: "created    tenant=a of api: unlimited\ncreated    tenant=b of api: unlimited"},
		{args: "assign --domain api tenant=x --plan none-such", code: 1, want: "refused    tenant=x of api: plan: found none-such; allowed: free, pro"},
		{args: "block --domain api tenant=acme", want: "replaced   tenant=acme of api: blocked, plan pro", before: "plan pro, contract"},
		{args: "assign --domain api tenant=acme --plan free --reason contract", want: "replaced   tenant=acme of api: blocked, plan free, contract", before: "blocked, plan pro"},
		{args: "unassign --domain api tenant=acme", want: "replaced   tenant=acme of api: blocked", before: "blocked, plan free, contract"},
		{args: "unblock --domain api tenant=acme --dry-run", want: "would be deleted    tenant=acme of api: nothing assigned", before: "blocked"},
		{args: "unblock --domain api tenant=acme", want: "deleted    tenant=acme of api: nothing assigned", before: "blocked"},
		{args: "unassign --domain api tenant=acme", want: "unchanged  tenant=acme of api: nothing assigned"},
		{args: "block --domain api tenant=m --until 2255-01-01T12:00:00+02:00 --reason scraping,again", want: `created    tenant=m of api: until 2255-01-01 10:00 blocked, "scraping,again"`},
		{args: "assign --domain api tenant=b --starts 15 --time-zone Europe/Berlin --only", want: "replaced   tenant=b of api: starts 15, time zone Europe/Berlin", before: "unlimited"},
		{args: "unassign --domain api tenant=b --calendar", want: "deleted    tenant=b of api: nothing assigned", before: "starts 15, time zone Europe/Berlin"},
	} {
		out, stderr, code := f.Run(t, strings.Fields(c.args)...)
		if c.want += "\n"; c.before != "" {
			c.want += "           before: " + c.before + "\n"
		}
		if code != c.code || out != c.want || stderr != "" {
			t.Errorf("%s exits with %d: %q\n%s\nwant %d and\n%s", c.args, code, stderr, out, c.code, c.want)
		}
	}
}

// What has an end lies on what has none, which is in force again afterwards. Whoever
// changes what is hidden, or would shorten relief, says so.
func TestReliefLiesOnTheContract(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	const contract, relief = "plan pro, 5,000,000 a month, contract 4711", "until 2255-01-01 6,000,000 a month, relief"
	const more = "until 2254-12-31 12:00 7,000,000 a month, more"
	for _, c := range []struct {
		args           string
		now, was, says string
	}{
		{args: "assign --plan pro --limit month=5000000 --reason contract_4711", now: contract},
		{args: "assign --limit month=6000000 --until 2254-12-31 --reason relief", now: contract + "; " + strings.Replace(relief, "2255-01-01", "2254-12-31", 1), was: contract},
		{args: "assign --limit month=6000000 --until 2255-01-01 --reason relief", now: contract + "; " + relief, was: contract + "; " + strings.Replace(relief, "2255-01-01", "2254-12-31", 1)},
		{args: "assign --limit month=6000000 --until 2255-01-01"},
		{args: "assign --limit month=7000000 --until 2254-12-31_12:00 --reason more", now: contract + "; " + relief + "; " + more, was: contract + "; " + relief,
			says: "afterwards, until 2255-01-01, 6,000,000 a month is in force again; unassign --temporary ends it"},
		{args: "assign --limit month=8000000", now: "plan pro, 8,000,000 a month; " + relief + "; " + more, was: contract + "; " + relief + "; " + more,
			says: "not in force yet: until 2255-01-01 6,000,000 a month is on top of it"},
		{args: "undo", now: contract + "; " + relief + "; " + more, was: "plan pro, 8,000,000 a month; " + relief + "; " + more},
		{args: "assign --plan pro --reason contract_4711"},
		{args: "unassign --temporary", now: contract, was: contract + "; " + relief + "; " + more},
		{args: "unassign --temporary"},
	} {
		words := strings.Fields(c.args)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_", " ")
		}
		out, stderr, code := f.Run(t, append([]string{words[0], "--domain", "api", "tenant=acme"}, words[1:]...)...)
		if c.now != "" && !strings.HasSuffix(strings.SplitAfter(out, "\n")[0], " of api: "+c.now+"\n") || c.now == "" && !strings.HasPrefix(out, "unchanged ") {
			t.Errorf("%s says\n%s\nwant %s", c.args, out, c.now)
		}
		if hasBefore := strings.Contains(out, "before: "); c.was != "" && !strings.Contains(out, "\n           before: "+c.was+"\n") || c.was == "" && hasBefore {
			t.Errorf("%s says\n%s\nwant before: %s", c.args, out, c.was)
		}
		if code != 0 || !strings.Contains(stderr, c.says) || c.says == "" && stderr != "" {
			t.Errorf("%s exits with %d: %s\nwant %s", c.args, code, stderr, c.says)
		}
	}
}

// The last change is taken back with what it replaced, and undo says whose it was.
func TestUndo(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "free", "--reason", "trial")
	f.Run(t, "unassign", "--domain", "api", "tenant=acme", "--reason", "oops")
	for _, c := range []struct{ args, want string }{
		{"--dry-run", "would be created    tenant=acme of api: plan free, trial\n           undone: the change by ops, 2026-05-04 03:02, oops\n"},
		{"", "created    tenant=acme of api: plan free, trial\n           undone: the change by ops, 2026-05-04 03:02, oops\n"},
		{"", "deleted    tenant=acme of api: nothing assigned\n           before: plan free, trial\n           undone: the change by ops, 2026-05-04 03:02\n"},
		{"--json", `{"change":{"outcome":"CHANGE_OUTCOME_CREATED",`},
	} {
		out, stderr, code := f.Run(t, append([]string{"undo", "--domain", "api", "tenant=acme"}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.HasPrefix(out, c.want) || stderr != "" {
			t.Errorf("undo %s exits with %d: %s\n%s\nwant\n%s", c.args, code, stderr, out, c.want)
		}
	}
	out, stderr, code := f.Run(t, "undo", "--domain", "api", "tenant=nobody")
	if code != cmdline.ExitError || out != "refused    tenant=nobody of api: there is no record of a change, so there is none to undo\n" || stderr != "" {
		t.Errorf("exits with %d: %s%s", code, stderr, out)
	}
}

// A flag whose value cannot be read says why.
func TestFlagsSayWhatIsWrongWithTheirValues(t *testing.T) {
	for args, want := range map[string]string{
		"block --until 2027-02-30": `flag --until: found "2027-02-30"; allowed: a span such as 24h`,
		"assign --until tomorrow":  `flag --until: found "tomorrow"; allowed: `,
		"assign --until someday":   `flag --until: found "someday"; allowed: `,
		"block --for 3":            `flag --for: found 3 without a unit ("3s" would be seconds); allowed: `,
		"assign --limit month=5/3": `flag --limit: found "month=5/3", where the period is 3 without a unit ("3s" would be seconds); allowed: [NAME=]`,
	} {
		_, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
		if code != cmdline.ExitError || !strings.HasPrefix(stderr, "ratelimitd: "+want) {
			t.Errorf("%s exits with %d: %q, want %q", args, code, stderr, want)
		}
	}
}

// Parts end one by one. What was not assigned stays unchanged.
func TestUnassignEndsTheNamedParts(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro", "--limit", "month=5", "--limit", "day=7", "--unlimited")
	for _, c := range []struct{ args, out, stderr string }{
		{"tenant=acme --unlimited --dry-run", "would be replaced   tenant=acme of api: plan pro, 7 a day, 5 a month\n           before: unlimited, ", ""},
		{"tenant=acme --unlimited", "replaced   tenant=acme of api: plan pro, 7 a day, 5 a month\n           before: unlimited, ", ""},
		{"tenant=acme --unlimited", "unchanged  tenant=acme of api: plan pro, ", ""},
		{"tenant=acme --limit mnth --limit day", "replaced   tenant=acme of api: plan pro, 5 a month\n", ""},
		{"tenant=acme --plan", "replaced   tenant=acme of api: 5 a month\n           before: plan pro", ""},
		{"tenant=acme --plan", "unchanged  tenant=acme of api: 5 a month\n", ""},
		{"tenant=acme --limit month", "deleted    tenant=acme of api: nothing assigned\n           before: 5 a month\n", ""},
		{"tenant=acme --limit month", "unchanged  tenant=acme of api: nothing assigned\n", ""},
	} {
		out, stderr, code := f.Run(t, append([]string{"unassign", "--domain", "api"}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.HasPrefix(out, c.out) || stderr != c.stderr {
			t.Errorf("unassign %s exits with %d: %q\n%s\nwant %q\n%s", c.args, code, stderr, out, c.stderr, c.out)
		}
	}
}

// All of a domain ends without a question, blocks only if that is asked for.
func TestUnassignAllOfADomain(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=a", "tenant=b", "tenant=c", "tenant=d", "--plan", "pro")
	f.Run(t, "assign", "--domain", "login", "tenant=a", "--plan", "pro")
	f.Run(t, "block", "--domain", "api", "tenant=b", "tenant=e")
	for _, c := range []struct {
		args, out string
		left      int
	}{
		{"--dry-run", `would be deleted    tenant=a of api: nothing assigned
           before: plan pro
would be replaced   tenant=b of api: blocked
           before: blocked, plan pro
would be deleted    tenant=c of api: nothing assigned
           before: plan pro
would be deleted    tenant=d of api: nothing assigned
           before: plan pro
3 assignments of api would end, 1 in part; 2 blocks left, which --blocks ends
`, 6},
		{"--temporary", "0 assignments of api ended; 2 blocks left, which --blocks ends\n", 6},
		{"--unlimited", "0 assignments of api ended; 2 blocks left, which --blocks ends\n", 6},
		{"", "3 assignments of api ended, 1 in part; 2 blocks left, which --blocks ends\n", 3},
		{"", "0 assignments of api ended; 2 blocks left, which --blocks ends\n", 3},
		{"--blocks", "2 assignments of api ended\n", 1},
	} {
		out, stderr, code := f.Run(t, append([]string{"unassign", "--domain", "api", "--all", "--yes"}, strings.Fields(c.args)...)...)
		if code != 0 || out != c.out || stderr != "" || len(f.Assignments) != c.left {
			t.Errorf("--all %s exits with %d: %q\n%s\nwant\n%s, and %d left, not %d", c.args, code, stderr, out, c.out, c.left, len(f.Assignments))
		}
	}
	if _, stderr, code := f.Run(t, "unassign", "--domain", "logn", "--all", "--yes"); code != 0 || stderr != "no limits have the domain \"logn\"\n" {
		t.Errorf("of an unknown domain: %d %s", code, stderr)
	}
}

func TestAssignRefusesBeforeItAsks(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for _, c := range []struct{ args, want string }{
		{"assign --domain api --plan pro", "found no argument; allowed: whom it is for, such as tenant=acme"},
		{"assign tenant=acme --plan pro", "found no --domain; ratelimitd assign needs it"},
		{"assign --domain api tenant=acme", "found none of --plan, --limit, --starts, --time-zone and --unlimited; allowed: one or more of them"},
		{"assign --domain api tenant=acme --only", "found none of --plan, --limit, --starts, --time-zone and --unlimited; allowed: one or more of them"},
		{"assign --domain api tenant=acme --limit month=5 --limit month=6", `numbers[1].limit: found the limit "month" twice; allowed: each limit once`},
		{"assign --domain api tenant=acme --plan pro --only --for 2h", "found --only with an end; allowed: one of the two, since what has an end lies on top and removes nothing"},
		{"assign --only --from x.csv", "found --from beside --only; allowed: one of them"},
		{"unassign --domain api", "found no argument; allowed: whom it is for, such as tenant=acme"},
		{"unassign --all", "found no --domain"},
		{"unassign --domain api --all", "found --all, which ends everything assigned in the domain; allowed: --dry-run, which shows what would end, or --yes"},
		{"unassign --domain api --all tenant=acme", `found the argument "tenant=acme" beside --all; allowed: one of the two`},
		{"unassign --domain api tenant=acme --blocks", "found --blocks without --all; allowed: both, or unblock"},
		{"unassign --domain api tenant=acme --limit month=500", `flag --limit: found "month=500"; allowed: the name of a limit, such as month`},
		{"assign --domain api tenant --plan pro", `found "tenant"; allowed: KEY=VALUE`},
		{"assign --domain api tenant=acme --limit x", `flag --limit: found "x", where "x" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST][,BLOCK_FOR]`},
		{"assign --domain api tenant=acme --plan pro --until 2020-01-01", "flag --until: found 2020-01-02T00:00:00Z, which is over"},
		{"assign --domain api tenant=acme --plan pro --until soon", `flag --until: found "soon"; allowed: a span`},
		{"assign --domain api tenant=acme --plan pro --for 5", `flag --for: found 5 without a unit ("5s" would be seconds); allowed: 1ms to 366d`},
		{"assign --domain api tenant=acme --plan pro --for 1d --until 2255-01-01", "found --for beside --until; allowed: one of them"},
		{"assign --domain api tenant=acme --plan pro --from x.csv", "found --from beside --plan; allowed: one of them"},
		{"assign tenant=acme --from x.csv", `found the argument "tenant=acme" beside --from`},
		{"assign --from none.csv", "no such file"},
		{"audit tenant=acme", `found "tenant=acme" without --domain`},
		{"assignments --export xml", `flag --export: found "xml"; allowed: csv or jsonl`},
	} {
		_, stderr, code := f.Run(t, strings.Fields(c.args)...)
		if code != cmdline.ExitError || !strings.Contains(stderr, c.want) {
			t.Errorf("%s exits with %d: %q, want %q", c.args, code, stderr, c.want)
		}
	}
	if len(f.Batches) > 0 {
		t.Errorf("the daemon was asked %v times", f.Batches)
	}
}

func TestWhatRedisRefusedIsToldAsRefused(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Refused = "pro"
	out, stderr, code := f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro")
	if code != cmdline.ExitError || out != "failed     tenant=acme of api: refused by Redis, nothing was changed: READONLY You can't write\n" || stderr != "" {
		t.Errorf("exits with %d: %q\n%s", code, stderr, out)
	}
}
