package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func TestAssignAndUnassign(t *testing.T) {
	f := startFakeAdmin(t)
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
		{"assign --domain api tenant=acme --plan free", 0, "replaced   tenant=acme of api: blocked until "},
		{"unblock --domain api tenant=acme", 0, "replaced   tenant=acme of api: plan free (reason: \"contract\"); until now blocked until "},
		{"unassign --domain api tenant=acme --reason over", 0, "deleted    tenant=acme of api: nothing assigned; until now plan free"},
		{"unassign --domain api tenant=acme", 0, "unchanged  tenant=acme of api: nothing assigned\n"},
		{"block --domain api tenant=a --until 2255-01-01T12:00:00+02:00", 0, "replaced   tenant=a of api: blocked until 2255-01-01T10:00:00Z ("},
		{"unassign --domain api tenant=a", 0, "replaced   tenant=a of api: blocked until 2255-01-01T10:00:00Z ("},
		{"unblock --domain api tenant=a", 0, "deleted    tenant=a of api: nothing assigned; until now blocked until "},
		{"unblock --domain api tenant=a", 0, "unchanged  tenant=a of api: nothing assigned\n"},
	} {
		out, stderr, code := f.run(t, strings.Fields(c.args)...)
		if code != c.code || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s exits with %d: %q\n%s\nwant %d and\n%s", c.args, code, stderr, out, c.code, c.want)
		}
	}
}

// Parts end one by one, and what was not there is told of.
func TestUnassignEndsTheNamedParts(t *testing.T) {
	f := startFakeAdmin(t)
	f.run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro", "--limit", "month=5", "--limit", "day=7", "--unlimited")
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
		out, stderr, code := f.run(t, append([]string{"unassign", "--domain", "api"}, strings.Fields(c.args)...)...)
		if code != 0 || !strings.HasPrefix(out, c.out) || stderr != c.stderr {
			t.Errorf("unassign %s exits with %d: %q\n%s\nwant %q\n%s", c.args, code, stderr, out, c.stderr, c.out)
		}
	}
}

// People name the plan as assign has it.
func TestUnassignTakesNoNameOfAPlan(t *testing.T) {
	f := startFakeAdmin(t)
	_, stderr, code := f.run(t, "unassign", "--domain", "api", "tenant=acme", "--plan", "pro")
	if code != exitError || !strings.Contains(stderr, `found "pro"; allowed: KEY=VALUE[,KEY=VALUE] and so on. --plan names no plan here`) || len(f.batches) > 0 {
		t.Errorf("exits with %d: %s", code, stderr)
	}
}

// All of a domain ends without a question, blocks only if that is asked for.
func TestUnassignAllOfADomain(t *testing.T) {
	f := startFakeAdmin(t)
	f.run(t, "assign", "--domain", "api", "tenant=a", "tenant=b", "tenant=c", "tenant=d", "--plan", "pro")
	f.run(t, "assign", "--domain", "login", "tenant=a", "--plan", "pro")
	f.run(t, "block", "--domain", "api", "tenant=b", "tenant=e")
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
		out, stderr, code := f.run(t, append([]string{"unassign", "--domain", "api", "--all"}, strings.Fields(c.args)...)...)
		if code != 0 || out != c.out || stderr != "" || len(f.assignments) != c.left {
			t.Errorf("--all %s exits with %d: %q\n%s\nwant\n%s, and %d left, not %d", c.args, code, stderr, out, c.out, c.left, len(f.assignments))
		}
	}
	if _, stderr, code := f.run(t, "unassign", "--domain", "logn", "--all"); code != 0 || stderr != "no limits have the domain \"logn\"\n" {
		t.Errorf("of an unknown domain: %d %s", code, stderr)
	}
}

// A daemon from before parts is told apart from one that fails.
func TestOldDaemonCannotChangeParts(t *testing.T) {
	f := startFakeAdmin(t)
	f.isOld = true
	for _, args := range []string{"assign --domain api tenant=a --plan pro", "unassign --domain api tenant=a --plan", "assign --from " + writeText(t, "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")} {
		_, stderr, code := f.run(t, strings.Fields(args)...)
		if code != exitError || !strings.Contains(stderr, "the daemon is of a version that cannot change parts of assignments: upgrade it") {
			t.Errorf("%s exits with %d: %s", args, code, stderr)
		}
	}
	if out, stderr, code := f.run(t, "block", "--domain", "api", "tenant=a"); code != 0 || out != "created    tenant=a of api: blocked\n" {
		t.Errorf("block exits with %d: %s%s", code, out, stderr)
	}
}

// A daemon that hangs has not answered anything.
func TestADaemonThatHangsHasNotAnswered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := &fakeAdmin{address: l.Addr().String()}
	_, stderr, code := f.run(t, "assignments", "--timeout", "10ms")
	if want := f.address + " has not answered within --timeout: "; code != exitError || !strings.Contains(stderr, want) {
		t.Errorf("exits with %d: %s", code, stderr)
	}
}

func TestAssignRefusesBeforeItAsks(t *testing.T) {
	f := startFakeAdmin(t)
	for _, c := range []struct{ args, want string }{
		{"assign --domain api --plan pro", "found no argument; allowed: whom it is for, such as tenant=acme"},
		{"assign tenant=acme --plan pro", "found no --domain; ratelimitd assign needs it"},
		{"assign --domain api tenant=acme", "found none of --plan, --limit and --unlimited; allowed: one or more of them"},
		{"assign --domain api tenant=acme --only", "found none of --plan, --limit and --unlimited; allowed: one or more of them"},
		{"assign --domain api tenant=acme --limit month=5 --limit month=6", `numbers[1].limit: found the limit "month" twice; allowed: each limit once`},
		{"assign --only --from x.csv", "found --from beside --only; allowed: one of them"},
		{"unassign --domain api", "found no argument; allowed: whom it is for, such as tenant=acme"},
		{"unassign --all", "found no --domain"},
		{"unassign --domain api --all tenant=acme", `found the argument "tenant=acme" beside --all; allowed: one of the two`},
		{"unassign --domain api tenant=acme --blocks", "found --blocks without --all; allowed: both, or unblock"},
		{"unassign --domain api tenant=acme --limit month=500", `flag --limit: found "month=500"; allowed: the name of a limit, such as month`},
		{"assign --domain api tenant --plan pro", `found "tenant"; allowed: KEY=VALUE`},
		{"assign --domain api tenant=acme --limit x", `flag --limit: found "x"; allowed: [NAME=]REQUESTS[/PERIOD][,BURST]`},
		{"assign --domain api tenant=acme --plan pro --until 2020-01-01", "flag --until: found 2020-01-02T00:00:00Z, which is over"},
		{"assign --domain api tenant=acme --plan pro --until soon", `flag --until: found "soon"; allowed: today, tomorrow`},
		{"assign --domain api tenant=acme --plan pro --for 5", `flag --for: found "5"; allowed: 1ms to 366d`},
		{"assign --domain api tenant=acme --plan pro --for 1d --until 2255-01-01", "found --for beside --until; allowed: one of them"},
		{"assign --domain api tenant=acme --plan pro --from x.csv", "found --from beside --plan; allowed: one of them"},
		{"assign tenant=acme --from x.csv", `found the argument "tenant=acme" beside --from`},
		{"assign --domain api tenant=acme --plan pro --skip-bad", "--skip-bad without --from"},
		{"assign --from none.csv", "no such file"},
		{"audit tenant=acme", `found "tenant=acme" without --domain`},
		{"assignments --export xml", `flag --export: found "xml"; allowed: csv or jsonl`},
	} {
		_, stderr, code := f.run(t, strings.Fields(c.args)...)
		if code != exitError || !strings.Contains(stderr, c.want) {
			t.Errorf("%s exits with %d: %q, want %q", c.args, code, stderr, c.want)
		}
	}
	if len(f.batches) > 0 {
		t.Errorf("the daemon was asked %v times", f.batches)
	}
}

func TestPendingDaemonsAreTold(t *testing.T) {
	f := startFakeAdmin(t)
	f.pending = []*adminv1.Daemon{{Id: "2", Address: "web-2:8081"}, {Id: "1", Address: "web-1:8081"}}
	file := writeText(t, "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")
	for _, args := range []string{
		"assign --domain api tenant=acme --plan pro", "block --domain api tenant=acme", "unblock --domain api tenant=acme",
		"unassign --domain api tenant=acme", "reset --domain api tenant=acme", "assign --from " + file,
	} {
		out, stderr, code := f.run(t, strings.Fields(args)...)
		if code != exitPending || out == "" || !strings.Contains(stderr, "not every daemon is known to have it in force yet: web-1:8081, web-2:8081;") {
			t.Errorf("%s exits with %d: %q", args, code, stderr)
		}
	}
}

// Where nobody knows which daemons there are, it is told for how long.
func TestUnknownDaemonsAreTold(t *testing.T) {
	f := startFakeAdmin(t)
	f.lacks = durationpb.New(6800 * time.Millisecond)
	file := writeText(t, "a.csv", "domain,entries,plan\napi,tenant=b,pro\n")
	for _, args := range []string{
		"assign --domain api tenant=acme --plan pro", "block --domain api tenant=acme", "unblock --domain api tenant=acme",
		"unassign --domain api tenant=acme", "reset --domain api tenant=acme", "assign --from " + file,
	} {
		f.maxWait = nil
		out, stderr, code := f.run(t, append(strings.Fields(args), "--max-wait", "300ms")...)
		if code != exitPending || out == "" || stderr != "for 6.8s there may be more daemons without it: Redis has lost, or begun, the register of daemons, or does not answer\n" {
			t.Errorf("%s exits with %d: %q", args, code, stderr)
		}
		if f.maxWait.AsDuration() != 300*time.Millisecond {
			t.Errorf("%s --max-wait 300ms waits for %v", args, f.maxWait)
		}
		if f.run(t, strings.Fields(args)...); f.maxWait != nil {
			t.Errorf("%s waits for %v", args, f.maxWait)
		}
	}
	if _, stderr, code := f.run(t, "block", "--domain", "api", "tenant=acme", "--max-wait", "5m"); code != exitError || !strings.Contains(stderr, `found "5m"; allowed: 0s to 10s`) {
		t.Errorf("--max-wait 5m exits with %d: %q", code, stderr)
	}
}

func TestWhatRedisRefusedIsToldAsRefused(t *testing.T) {
	f := startFakeAdmin(t)
	f.refused = "pro"
	out, stderr, code := f.run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro")
	if code != exitError || out != "failed     tenant=acme of api: refused by Redis, nothing was changed: READONLY You can't write\n" || stderr != "" {
		t.Errorf("exits with %d: %q\n%s", code, stderr, out)
	}
}

func TestTokenGoesWithEachCall(t *testing.T) {
	f := startFakeAdmin(t)
	t.Setenv(tokenVariable, "from-environment")
	if _, stderr, code := f.run(t, "audit"); code != 0 || f.token != "Bearer from-environment" || stderr != "" {
		t.Errorf("audit exits with %d and sends %q: %s", code, f.token, stderr)
	}
	if _, _, code := f.run(t, "audit", "--token-file", writeText(t, "token", "from-file\n")); code != 0 || f.token != "Bearer from-file" {
		t.Errorf("audit exits with %d and sends %q", code, f.token)
	}
	if _, stderr, code := f.run(t, "audit", "--token-file", writeText(t, "token", "\n")); code != exitError || !strings.Contains(stderr, "does not hold one line with a token") {
		t.Errorf("audit with an empty file exits with %d: %s", code, stderr)
	}
}

func TestUnreachableDaemonIsAdvisedOn(t *testing.T) {
	for _, args := range []string{
		"assignments --admin-address 127.0.0.1:1", "explain --admin-address 127.0.0.1:1 --domain api a=b", "health --address 127.0.0.1:1",
	} {
		_, stderr, code := runWords(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
		if code != exitError || !strings.Contains(stderr, "127.0.0.1:1 cannot be reached") || !strings.Contains(stderr, "start a daemon there (ratelimitd serve --limits-path FOLDER)") {
			t.Errorf("%s exits with %d: %s", args, code, stderr)
		}
	}
	f := startFakeAdmin(t)
	if _, stderr, code := f.run(t, "audit", "--tls"); code != exitError || !strings.Contains(stderr, "\nthe port speaks no TLS: leave out the --tls flags\n") {
		t.Errorf("--tls to a port without exits with %d: %s", code, stderr)
	}
	t.Setenv("RATELIMITD_ADMIN_ADDRESS", "")
	if _, stderr, _ := runWords(t, "", "ratelimitd", "audit"); !strings.Contains(stderr, "has no admin port: set admin.address, which is empty, or give --admin-address") {
		t.Errorf("without an admin port audit says %s", stderr)
	}
}

func TestSupportCommands(t *testing.T) {
	f := startFakeAdmin(t)
	f.run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro", "--reason", "contract")
	f.run(t, "unassign", "--domain", "api", "tenant=acme", "--reason", "over")
	for _, c := range []struct{ args, want string }{
		{"inspect --domain api tenant=acme", `└─ tenant=acme: denied
   ├─ rule tenant (limits.yaml:3), plan pro
   ├─ limit day: 250 at once, then about one every 5m 46s, numbers of an assignment
   │  ├─ denies: 0 of 250 left, would allow this in 1m 30s
   │  └─ key k
   └─ limit: 10 at once, then 10 a second
      ├─ allows: 9 of 10 left, full again in 100ms
      └─ key k2
`},
		{"explain --domain api tenant=acme", "It would pass.\n└─ tenant=acme: allowed\n   └─ no rule\n"},
		{"reset --domain api tenant=acme", "reset  tenant=acme of api: day, the limit without a name\n"},
		{"reset --domain api tenant=acme --limit day", "reset  tenant=acme of api: day\n"},
		{"audit --domain api tenant=acme", `2026-05-04T03:02:01Z  ops  tenant=acme of api: nothing assigned; until then plan pro (reason: "contract"); ended with the reason "over"
2026-05-04T03:02:01Z  ops  tenant=acme of api: plan pro (reason: "contract")
`},
		{"audit --most 1", "2026-05-04T03:02:01Z  ops  tenant=acme of api: nothing assigned; until then plan pro (reason: \"contract\"); ended with the reason \"over\"\n"},
		{"audit --domain login", "nothing was changed\n"},
		{"audit --domain logn", "nothing was changed\n"},
		{"assignments", "nothing is assigned\n"},
	} {
		out, stderr, code := f.run(t, strings.Fields(c.args)...)
		if code != 0 || out != c.want {
			t.Errorf("%s exits with %d: %q\n%s\nwant\n%s", c.args, code, stderr, out, c.want)
		}
	}
}

// Each line of --json is one object, with the names of the API.
func TestJSONHasALineForEachResult(t *testing.T) {
	f := startFakeAdmin(t)
	for _, c := range []struct {
		args  string
		lines int
		field string
	}{
		{"assign --json --domain api tenant=a tenant=b --plan pro", 2, "outcome"},
		{"block --json --domain api tenant=c", 1, "after"},
		{"assignments --json", 3, "made_by"},
		{"audit --json", 3, "made_by"},
		{"inspect --json --domain api tenant=a", 1, "descriptor"},
		{"explain --json --domain api tenant=a tenant=b", 1, "summary"},
		{"reset --json --domain api tenant=a", 1, "limits"},
		{"unassign --json --domain api tenant=a", 1, "outcome"},
		{"unblock --json --domain api tenant=c", 1, "before"},
	} {
		out, stderr, code := f.run(t, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != 0 || len(lines) != c.lines {
			t.Errorf("%s exits with %d: %q\n%s", c.args, code, stderr, out)
		}
		for _, line := range lines {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil || m[c.field] == nil {
				t.Errorf("%s prints %s, which lacks %s: %v", c.args, line, c.field, err)
			}
		}
	}
}

func TestWordsAreCompleted(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"replay --by", "subject\nrequest\n:4\n"},
		{"top --by", "denied\nused\n:4\n"},
		{"top --window", "1m\n15m\n1h\n:4\n"},
	} {
		words := append([]string{"ratelimitd", "__complete"}, append(strings.Fields(c.words), "")...)
		if out, stderr, code := runWords(t, "", words...); code != 0 || out != c.want {
			t.Errorf("%s completes to %q, want %q (%d, %s)", c.words, out, c.want, code, stderr)
		}
	}
}

func TestCompletionAsksTheDaemon(t *testing.T) {
	f := startFakeAdmin(t)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"query", "--domain", ""}, "api\nlogin\n:4\n"},
		{[]string{"query", "--domain", "l"}, "login\n:4\n"},
		{[]string{"query", "--domain", "api", ""}, "tenant=\nuser=\n:6\n"},
		{[]string{"assign", "--domain", "api", "te"}, "tenant=\n:6\n"},
		{[]string{"assign", "--domain", "api", "--plan", ""}, "free\npro\n:4\n"},
		{[]string{"assign", "--domain", "api", "tenant=a", "--limit", ""}, "day=\nmonth=\n:6\n"},
		{[]string{"reset", "--domain", "api", "tenant=a", "--limit", "m"}, "month\n:4\n"},
		{[]string{"block", "--domain", "api", "tenant=a", "--until", ""}, ":4\n"},
		{[]string{"block", "--domain", "api", "tenant=a", "--reason", ""}, ":4\n"},
		{[]string{"query", "--domain", "api", "user=a"}, ":4\n"},
	} {
		t.Setenv("RATELIMITD_ADMIN_ADDRESS", f.address)
		words := append([]string{"ratelimitd", "__complete"}, c.words...)
		if out, stderr, code := runWords(t, "", words...); code != 0 || out != c.want {
			t.Errorf("%q completes to %q, want %q (%d, %s)", c.words, out, c.want, code, stderr)
		}
		t.Setenv("RATELIMITD_ADMIN_ADDRESS", "127.0.0.1:1")
		if out, _, code := runWords(t, "", words...); code != 0 || strings.Count(out, "\n") != 1 {
			t.Errorf("without a daemon %q completes to %q (%d)", c.words, out, code)
		}
	}
}
