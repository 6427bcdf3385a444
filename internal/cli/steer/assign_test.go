package steer_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func TestAssignAndUnassign(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"assign --domain api tenant=acme --plan free", 0, "created    tenant=acme of api: plan free\n"},
		{"assign --domain api tenant=acme --plan free", 0, "unchanged  tenant=acme of api: plan free\n"},
		{"assign --domain api tenant=acme --plan pro --dry-run", 0, "would be replaced   tenant=acme of api: plan pro; until now plan free\n"},
		{"assign --domain api tenant=acme --plan pro --limit month=5000000/30d --limit 100/1s,200 --until 2255-01-01 --reason contract", 0,
			`replaced   tenant=acme of api: plan pro until 2255-01-02T00:00:00Z (`},
		{"assign --domain api tenant=acme --plan pro", 0, "replaced   tenant=acme of api: plan pro, limit 100/1s,200 until 2255-01-02T00:00:00Z ("},
		{"assign --domain api tenant=acme --unlimited --until 2254-12-31", 0, "replaced   tenant=acme of api: unlimited until 2255-01-01T00:00:00Z ("},
		{"assign --domain api tenant=acme --plan pro --only --reason contract", 0, "replaced   tenant=acme of api: plan pro (reason: \"contract\"); until now unlimited until "},
		{"assign --domain api tenant=acme --plan pro --only", 0, "unchanged  tenant=acme of api: plan pro (reason: \"contract\")\n"},
		{"assign --domain api tenant=a tenant=b --unlimited", 0, "created    tenant=a of api: unlimited\ncreated    tenant=b of api: unlimited\n"},
		{"assign --domain api tenant=x --plan none-such", 1, "refused    tenant=x of api: plan: found none-such; allowed: free, pro\n"},
		{"unblock --domain api tenant=acme", 0, "unchanged  tenant=acme of api: plan pro "},
		{"block --domain api tenant=acme --for 24h", 0, "replaced   tenant=acme of api: blocked until "},
		{"block --domain api tenant=acme", 0, "replaced   tenant=acme of api: blocked, plan pro; until now blocked until "},
		{"assign --domain api tenant=acme --plan free --reason contract", 0, "replaced   tenant=acme of api: blocked, plan free (reason: \"contract\"); until now blocked, plan pro\n"},
		{"unblock --domain api tenant=acme", 0, "replaced   tenant=acme of api: plan free; until now blocked, plan free (reason: \"contract\")\n"},
		{"unassign --domain api tenant=acme --reason over", 0, "deleted    tenant=acme of api: nothing assigned; until now plan free"},
		{"unassign --domain api tenant=acme", 0, "unchanged  tenant=acme of api: nothing assigned\n"},
		{"block --domain api tenant=a --until 2255-01-01T12:00:00+02:00", 0, "replaced   tenant=a of api: blocked until 2255-01-01T10:00:00Z ("},
		{"unassign --domain api tenant=a", 0, "replaced   tenant=a of api: blocked until 2255-01-01T10:00:00Z ("},
		{"unblock --domain api tenant=a", 0, "deleted    tenant=a of api: nothing assigned; until now blocked until "},
		{"unblock --domain api tenant=a", 0, "unchanged  tenant=a of api: nothing assigned\n"},
		{"assign --domain api tenant=b --starts 15 --time-zone Europe/Berlin --only", 0, "replaced   tenant=b of api: starts 15, time zone Europe/Berlin; until now unlimited\n"},
		{"assign --domain api tenant=b --plan pro --until 2255-01-01", 0, "replaced   tenant=b of api: plan pro until 2255-01-02T00:00:00Z ("},
		{"unassign --domain api tenant=b --calendar", 0, "replaced   tenant=b of api: plan pro until 2255-01-02T00:00:00Z ("},
		{"unassign --domain api tenant=b --calendar", 0, "unchanged  tenant=b of api: plan pro until "},
	} {
		out, stderr, code := f.Run(t, strings.Fields(c.args)...)
		if code != c.code || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s exits with %d: %q\n%s\nwant %d and\n%s", c.args, code, stderr, out, c.code, c.want)
		}
	}
}

// A flag whose value cannot be read says why.
func TestFlagsSayWhatIsWrongWithTheirValues(t *testing.T) {
	for args, want := range map[string]string{
		"block --until 2027-02-30":             `flag --until: found "2027-02-30"; allowed: a span such as 24h`,
		"assign --until tomorrow":              `flag --until: found "tomorrow"; allowed: `,
		"assign --until someday":               `flag --until: found "someday"; allowed: `,
		"block --for 3":                        `flag --for: found 3 without a unit ("3s" would be seconds); allowed: `,
		"assign --limit month=5/3":             `flag --limit: found "month=5/3", where the period is 3 without a unit ("3s" would be seconds); allowed: [NAME=]`,
		"block tenant=acme --max-wait forever": `flag --max-wait: found "forever"; allowed: `,
	} {
		_, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
		if code != exit.Error || !strings.HasPrefix(stderr, "ratelimitd: "+want) {
			t.Errorf("%s exits with %d: %q, want %q", args, code, stderr, want)
		}
	}
}

// Parts end one by one, and what was not there is told of.
func TestUnassignEndsTheNamedParts(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro", "--limit", "month=5", "--limit", "day=7", "--unlimited")
	for _, c := range []struct{ args, out, stderr string }{
		{"tenant=acme --unlimited --dry-run", "would be replaced   tenant=acme of api: plan pro, limit day=7, limit month=5; until now unlimited, ", ""},
		{"tenant=acme --unlimited", "replaced   tenant=acme of api: plan pro, limit day=7, limit month=5; until now unlimited, ", ""},
		{"tenant=acme --unlimited", "unchanged  tenant=acme of api: plan pro, ", "tenant=acme of api was not unlimited\n"},
		{"tenant=acme --limit mnth --limit day", "replaced   tenant=acme of api: plan pro, limit month=5; until now ", "tenant=acme of api had no numbers of mnth, but of day, month\n"},
		{"tenant=acme --plan", "replaced   tenant=acme of api: limit month=5; until now plan pro", ""},
		{"tenant=acme --plan", "unchanged  tenant=acme of api: limit month=5\n", "tenant=acme of api had no plan assigned\n"},
		{"tenant=acme --limit month", "deleted    tenant=acme of api: nothing assigned; until now limit month=5\n", ""},
		{"tenant=acme --limit month", "unchanged  tenant=acme of api: nothing assigned\n", "tenant=acme of api had no numbers of month\n"},
	} {
		out, stderr, code := f.Run(t, append([]string{"unassign", "--domain", "api"}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.HasPrefix(out, c.out) || stderr != c.stderr {
			t.Errorf("unassign %s exits with %d: %q\n%s\nwant %q\n%s", c.args, code, stderr, out, c.stderr, c.out)
		}
	}
}

// People name the plan as assign has it.
func TestUnassignTakesNoNameOfAPlan(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	_, stderr, code := f.Run(t, "unassign", "--domain", "api", "tenant=acme", "--plan", "pro")
	if code != exit.Error || !strings.Contains(stderr, `found "pro"; allowed: KEY=VALUE[,KEY=VALUE] and so on. --plan names no plan here`) || len(f.Batches) > 0 {
		t.Errorf("exits with %d: %s", code, stderr)
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
		{"--dry-run", `would be deleted    tenant=a of api: nothing assigned; until now plan pro
would be replaced   tenant=b of api: blocked; until now blocked, plan pro
would be deleted    tenant=c of api: nothing assigned; until now plan pro
would be deleted    tenant=d of api: nothing assigned; until now plan pro
3 assignments of api would end, 1 in part; 2 blocks left, which --blocks ends
`, 6},
		{"--unlimited", "0 assignments of api ended; 2 blocks left, which --blocks ends\n", 6},
		{"", "3 assignments of api ended, 1 in part; 2 blocks left, which --blocks ends\n", 3},
		{"", "0 assignments of api ended; 2 blocks left, which --blocks ends\n", 3},
		{"--blocks", "2 assignments of api ended\n", 1},
	} {
		out, stderr, code := f.Run(t, append([]string{"unassign", "--domain", "api", "--all"}, strings.Fields(c.args)...)...)
		if code != 0 || out != c.out || stderr != "" || len(f.Assignments) != c.left {
			t.Errorf("--all %s exits with %d: %q\n%s\nwant\n%s, and %d left, not %d", c.args, code, stderr, out, c.out, c.left, len(f.Assignments))
		}
	}
	if _, stderr, code := f.Run(t, "unassign", "--domain", "logn", "--all"); code != 0 || stderr != "no limits have the domain \"logn\"\n" {
		t.Errorf("of an unknown domain: %d %s", code, stderr)
	}
}

// A daemon from before parts is told apart from one that fails.
func TestOldDaemonCannotChangeParts(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.IsOld = true
	for _, args := range []string{"assign --domain api tenant=a --plan pro", "unassign --domain api tenant=a --plan", "assign --from " + filetest.Write(t, t.TempDir(), "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")} {
		_, stderr, code := f.Run(t, strings.Fields(args)...)
		if code != exit.Error || !strings.Contains(stderr, "the daemon is of a version that cannot change parts of assignments: upgrade it") {
			t.Errorf("%s exits with %d: %s", args, code, stderr)
		}
	}
	if out, stderr, code := f.Run(t, "block", "--domain", "api", "tenant=a"); code != 0 || out != "created    tenant=a of api: blocked\n" {
		t.Errorf("block exits with %d: %s%s", code, out, stderr)
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
		{"assign --only --from x.csv", "found --from beside --only; allowed: one of them"},
		{"unassign --domain api", "found no argument; allowed: whom it is for, such as tenant=acme"},
		{"unassign --all", "found no --domain"},
		{"unassign --domain api --all tenant=acme", `found the argument "tenant=acme" beside --all; allowed: one of the two`},
		{"unassign --domain api tenant=acme --blocks", "found --blocks without --all; allowed: both, or unblock"},
		{"unassign --domain api tenant=acme --limit month=500", `flag --limit: found "month=500"; allowed: the name of a limit, such as month`},
		{"assign --domain api tenant --plan pro", `found "tenant"; allowed: KEY=VALUE`},
		{"assign --domain api tenant=acme --limit x", `flag --limit: found "x", where "x" are no requests from 0 to 4503599627370496; allowed: [NAME=]REQUESTS[/PERIOD][,BURST]`},
		{"assign --domain api tenant=acme --plan pro --until 2020-01-01", "flag --until: found 2020-01-02T00:00:00Z, which is over"},
		{"assign --domain api tenant=acme --plan pro --until soon", `flag --until: found "soon"; allowed: a span`},
		{"assign --domain api tenant=acme --plan pro --for 5", `flag --for: found 5 without a unit ("5s" would be seconds); allowed: 1ms to 366d`},
		{"assign --domain api tenant=acme --plan pro --for 1d --until 2255-01-01", "found --for beside --until; allowed: one of them"},
		{"assign --domain api tenant=acme --plan pro --from x.csv", "found --from beside --plan; allowed: one of them"},
		{"assign tenant=acme --from x.csv", `found the argument "tenant=acme" beside --from`},
		{"assign --domain api tenant=acme --plan pro --skip-bad", "--skip-bad without --from"},
		{"assign --from none.csv", "no such file"},
		{"audit tenant=acme", `found "tenant=acme" without --domain`},
		{"assignments --export xml", `flag --export: found "xml"; allowed: csv or jsonl`},
	} {
		_, stderr, code := f.Run(t, strings.Fields(c.args)...)
		if code != exit.Error || !strings.Contains(stderr, c.want) {
			t.Errorf("%s exits with %d: %q, want %q", c.args, code, stderr, c.want)
		}
	}
	if len(f.Batches) > 0 {
		t.Errorf("the daemon was asked %v times", f.Batches)
	}
}

func TestPendingDaemonsAreTold(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Pending = []*adminv1.Daemon{{Id: "2", Address: "web-2:8081"}, {Id: "1", Address: "web-1:8081"}}
	file := filetest.Write(t, t.TempDir(), "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")
	for _, args := range []string{
		"assign --domain api tenant=acme --plan pro", "block --domain api tenant=acme", "unblock --domain api tenant=acme",
		"unassign --domain api tenant=acme", "reset --domain api tenant=acme", "assign --from " + file,
	} {
		out, stderr, code := f.Run(t, strings.Fields(args)...)
		if code != exit.Pending || out == "" || !strings.Contains(stderr, "not every daemon is known to have it in force yet: web-1:8081, web-2:8081;") {
			t.Errorf("%s exits with %d: %q", args, code, stderr)
		}
	}
}

// Where nobody knows which daemons there are, it is told for how long.
func TestUnknownDaemonsAreTold(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.UnknownFor = durationpb.New(6800 * time.Millisecond)
	file := filetest.Write(t, t.TempDir(), "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")
	for _, args := range []string{
		"assign --domain api tenant=acme --plan pro", "block --domain api tenant=acme", "unblock --domain api tenant=acme",
		"unassign --domain api tenant=acme", "reset --domain api tenant=acme", "assign --from " + file,
	} {
		f.MaxWait = nil
		out, stderr, code := f.Run(t, append(strings.Fields(args), "--max-wait", "300ms")...)
		if code != exit.Pending || out == "" || stderr != "for 6.8s there may be more daemons without it: Redis has lost, begun or failed over the register of daemons, or does not answer\n" {
			t.Errorf("%s exits with %d: %q", args, code, stderr)
		}
		if f.MaxWait.AsDuration() != 300*time.Millisecond {
			t.Errorf("%s --max-wait 300ms waits for %v", args, f.MaxWait)
		}
		if f.Run(t, strings.Fields(args)...); f.MaxWait != nil {
			t.Errorf("%s waits for %v", args, f.MaxWait)
		}
	}
	if _, stderr, code := f.Run(t, "block", "--domain", "api", "tenant=acme", "--max-wait", "5m"); code != exit.Error || !strings.Contains(stderr, `found "5m"; allowed: 0s to 10s`) {
		t.Errorf("--max-wait 5m exits with %d: %q", code, stderr)
	}
}

func TestWhatRedisRefusedIsToldAsRefused(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Refused = "pro"
	out, stderr, code := f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro")
	if code != exit.Error || out != "failed     tenant=acme of api: refused by Redis, nothing was changed: READONLY You can't write\n" || stderr != "" {
		t.Errorf("exits with %d: %q\n%s", code, stderr, out)
	}
}
