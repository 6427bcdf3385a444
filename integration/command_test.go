package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

const limitsOf3 = `
domain: api
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: fixed_window, requests: 3, period: 365d}
`

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"demo", "serve", "check", "take", "health", "status", "daemons", "version", "completion",
		"settle", "release", "explain", "inspect", "assign", "unassign", "block", "unblock", "assignments", "reset", "audit", "top", "replay"} {
		t.Run(name, func(t *testing.T) {
			out, _, code := command(t, name, "--help")
			if code != 0 || !strings.Contains(out, "Examples:\n") && name != "completion" || !strings.Contains(out, "ratelimitd "+name) {
				t.Errorf("--help exits with %d:\n%s", code, out)
			}
		})
	}
	if out, _, code := command(t, "version"); code != 0 || !strings.HasPrefix(out, "ratelimitd ") {
		t.Errorf("version exits with %d: %q", code, out)
	} else if flag, _, code := command(t, "--version"); code != 0 || flag != out {
		t.Errorf("--version exits with %d: %q, want %q", code, flag, out)
	}
	if _, stderr, code := command(t, "sevre"); code != 1 || !strings.Contains(stderr, `unknown command "sevre"; did you mean serve?`) {
		t.Errorf("an unknown command exits with %d: %q", code, stderr)
	}
}

// Every command reports a wrong flag in the same words.
func TestWrongFlagsAreToldAlikeByEveryCommand(t *testing.T) {
	t.Parallel()
	const (
		cost = "a whole number from 1 to 4503599627370496"
		wait = "1ms to 24h with a unit, such as 500ms or 2s"
	)
	for _, c := range []struct{ name, args, want string }{
		{"a slip", "serve --limit-path x", "flag --limit-path: ratelimitd serve has no such flag; did you mean --limits-path?"},
		{"one dash", "serve -limits-path=x", "flag -limits-path: ratelimitd serve has no such flag; did you mean --limits-path?"},
		{"a slip with a secret", "serve --redis-password=hunter2", "flag --redis-password: ratelimitd serve has no such flag; did you mean --redis-password-file?"},
		{"a slip in another command", "health --adress x", "flag --adress: ratelimitd health has no such flag; did you mean --address?"},
		{"a slip in check", "check --mergedomains x", "flag --mergedomains: ratelimitd check has no such flag; did you mean --merge-domains?"},
		{"no command", "--limits-path x", "flag --limits-path: ratelimitd has no such flag; ratelimitd serve has it"},
		{"another command's", "daemons --limits-path x", "flag --limits-path: ratelimitd daemons has no such flag; ratelimitd serve has it"},
		{"an argument", "top --domain api", "flag --domain: ratelimitd top has no such flag; it is an argument. Usage: ratelimitd top [DOMAIN [RULE]]"},
		{"nothing like it", "version -x", "flag -x: ratelimitd version has no such flag; ratelimitd version --help lists those that it has"},
		{"no value", "serve --limits-path", "flag --limits-path: found no value; allowed: --limits-path and a value (path)"},
		{"no name", "serve --=x", `found the flag "--"; allowed: --NAME, --NAME VALUE or --NAME=VALUE`},
		{"a prefix of commands", "assi", `unknown command "assi"; did you mean assign or assignments?`},
		{"nothing like a command", "frobnicate", `unknown command "frobnicate"; ratelimitd --help lists them`},
		{"help about nothing", "help sevre", `unknown command "sevre"; did you mean serve?`},
		{"another shell", "completion fsh", `unknown command "fsh"; did you mean bash or fish or zsh?`},
		{"a flag without dashes", "version jsn", `found the argument "jsn"; allowed: flags alone. Usage: ratelimitd version [flags]; did you mean --json?`},
		{"a command behind another", "daemons chekc", `Usage: ratelimitd daemons [flags]; did you mean ratelimitd check?`},
		{"an argument for a shell", "completion bash x", `found the argument "x"; allowed: flags alone. Usage: ratelimitd completion bash`},
		{"an argument", "serve limits", `found the argument "limits"; allowed: flags alone. Usage: ratelimitd serve [flags]`},
		{"a negative cost", "take --domain d --cost -1 a=b", `flag --cost: found "-1"; allowed: ` + cost},
		{"no cost", "take --domain d --cost 0 a=b", `flag --cost: found "0"; allowed: ` + cost},
		{"a high cost", "take --domain d --cost 4503599627370497 a=b", `flag --cost: found "4503599627370497"; allowed: ` + cost},
		{"a cost that is no number", "take --domain d --cost 1x a=b", `flag --cost: found "1x"; allowed: ` + cost},
		{"a count that is no number", "take --domain d --count= a=b", `flag --count: found ""; allowed: a whole number from 1 to 2147483647`},
		{"a time without a unit", "take --domain d --timeout 5 a=b", `flag --timeout: found "5"; allowed: ` + wait},
		{"no time", "health --timeout 0s", `flag --timeout: found "0s"; allowed: ` + wait},
		{"neither yes nor no", "take --domain d --json=maybe a=b", `flag --json: found "maybe"; allowed: true or false`},
		{"neither, in check", "check --lenient=x limits", `flag --lenient: found "x"; allowed: true or false`},
		{"two that exclude each other", "block --domain d --for 1h --until 2026-12-31 a=b", "found --for beside --until; allowed: one of them"},
		{"no domain", "explain a=b", "found no --domain; ratelimitd explain needs it. Usage: ratelimitd explain --domain D"},
		{"no domain to assign in", "assign a=b --plan pro", "found no --domain; ratelimitd assign needs it. Usage: ratelimitd assign --domain D"},
		{"nothing to assign", "assign --domain d a=b", "found none of --plan, --limit, --starts, --time-zone and --unlimited; allowed: one or more of them"},
		{"too many arguments", "audit --domain d a=b c=d", "found 2 arguments; allowed: at most 1. Usage: ratelimitd audit"},
		{"a URL", "explain --domain d --admin-address http://127.0.0.1:6070 a=b", `flag --admin-address: found "http://127.0.0.1:6070"; allowed: host:port, such as 127.0.0.1:6070`},
		{"no port", "take --domain d --address localhost a=b", `flag --address: found "localhost"; allowed: host:port, such as 127.0.0.1:8081`},
		{"a setting", "serve --redis-hash-tags x", "flag --redis-hash-tags: found "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := command(t, strings.Fields(c.args)...)
			if code != 1 || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "hunter2") {
				t.Errorf("%s exits with %d: %q, want %q", c.args, code, stderr, c.want)
			}
		})
	}
}

func TestTakeShowsDecisions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "api.yaml", limitsOf3)
	d := start(t, "--limits-path", dir)

	out, stderr, code := command(t, "take", "--address", d.grpc, "--domain", "api", "user=alice")
	if want := regexp.MustCompile(`^allowed  user=alice  per-user: 2 left; 3 requests a year; full again in \d+d( \d+h)?\n$`); code != 0 || !want.MatchString(out) {
		t.Errorf("the first take exits with %d: %q %q", code, out, stderr)
	}
	out, _, code = command(t, "take", "--address", d.grpc, "--domain", "api", "--peek", "--count", "4", "user=alice")
	if code != 0 || strings.Count(out, "per-user: 2 left;") != 4 {
		t.Errorf("four peeks exit with %d:\n%s", code, out)
	}
	out, _, code = command(t, "take", "--address", d.grpc, "--domain", "api", "--cost", "2", "--json", "user=alice")
	if m := decodeJSON(t, out); code != 0 || m["allowed"] != true || !strings.Contains(out, `"descriptor_index":0,"name":"per-user"`) || !strings.Contains(out, `"remaining":0`) {
		t.Errorf("the second take exits with %d: %q", code, out)
	}
	// The fields are those of the HTTP API, spelt as in all other commands.
	printed, _, _ := command(t, "take", "--address", d.grpc, "--domain", "api", "--peek", "--json", "user=alice")
	served, err := http.Post("http://"+d.http+"/v1/take", "application/json", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"alice"}],"cost":0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Body.Close()
	body, err := io.ReadAll(served.Body)
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(fieldsOf(decodeJSON(t, printed)), "_", "")
	if want := strings.ToLower(fieldsOf(decodeJSON(t, string(body)))); joined != want {
		t.Errorf("take --json has the fields %s; over HTTP they are %s", joined, want)
	}
	out, _, code = command(t, "take", "--address", d.grpc, "--domain", "api", "user=alice", "user=bob,plan=free")
	if code != 3 || !strings.Contains(out, "denied   user=alice          per-user: 0 left") ||
		!strings.Contains(out, "allowed  user=bob,plan=free  no limit applies\n") ||
		!strings.Contains(out, "\nDENIED   the request as a whole; try again in ") ||
		!strings.HasSuffix(out, "\nwhy: ratelimitd explain --admin-address HOST:PORT --domain api user=alice user=bob,plan=free\n") {
		t.Errorf("a take over the limit exits with %d:\n%s", code, out)
	}
	out, _, code = command(t, "take", "--address", d.grpc, "--domain", "api", "--count", "4", `user=a\,b\=c`)
	if code != 3 || strings.Count(out, "allowed") != 3 || strings.Count(out, "denied") != 1 || !strings.Contains(out, `--domain api 'user=a\,b\=c'`) {
		t.Errorf("four takes of a limit of 3 exit with %d:\n%s", code, out)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--address", d.grpc, "--domain", "api", "alice"}, `ratelimitd: found "alice"; allowed: KEY=VALUE`},
		{[]string{"--address", d.grpc, "--domain", "", "user=alice"}, "answers InvalidArgument: domain is empty"},
		{[]string{"--address", "127.0.0.1:1", "--domain", "api", "user=alice"}, "start a daemon there (ratelimitd serve --limits-path FOLDER), or say where one listens: with --address"},
		{[]string{"--address", d.grpc, "user=alice"}, "found no --domain; ratelimitd take needs it. Usage: ratelimitd take --domain D KEY=VALUE"},
		{[]string{"--address", d.grpc, "--domain", "api", "--tls", "user=alice"}, "cannot be reached"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if _, stderr, code := command(t, append([]string{"take"}, tc.args...)...); code != 1 || !strings.Contains(stderr, tc.want) {
				t.Errorf("take %v exits with %d: %q, want %q", tc.args, code, stderr, tc.want)
			}
		})
	}
}

// fieldsOf names the fields of an answer, and those of its first limit.
func fieldsOf(answer map[string]any) string {
	limit := answer["limits"].([]any)[0].(map[string]any)
	return fmt.Sprint(slices.Sorted(maps.Keys(answer)), slices.Sorted(maps.Keys(limit)))
}

func TestHealthCommandAsksTheDaemon(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", t.TempDir())
	if out, stderr, code := command(t, "health", "--address", d.grpc); code != 0 || out != "SERVING\n" {
		t.Errorf("health exits with %d: %q %q", code, out, stderr)
	}
	if _, stderr, code := commandEnv(t, []string{"RATELIMITD_GRPC_ADDRESS=" + d.grpc}, "health"); code != 0 {
		t.Errorf("health with the daemon's environment exits with %d: %q", code, stderr)
	}
	if _, stderr, code := command(t, "health", "--address", "127.0.0.1:1"); code != 1 || !strings.Contains(stderr, "cannot be reached") {
		t.Errorf("health of nobody exits with %d: %q", code, stderr)
	}
	if status, body := get(t, "http://"+d.http+"/healthcheck"); status != 200 {
		t.Errorf("/healthcheck: %d %q", status, body)
	}
}

// An operator whose request is denied learns why by the command that the denial names,
// without a token.
func TestADenialNamesACommandThatExplainsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "api.yaml", "domain: api\ndescriptors: [{key: user, rate_limit: {algorithm: token_bucket, requests: 10, period: 10h}}]\n")
	d := start(t, "--limits-path", dir)
	env := []string{"RATELIMITD_GRPC_ADDRESS=" + d.grpc, "RATELIMITD_ADMIN_ADDRESS=" + d.admin}
	out, _, code := commandEnv(t, env, "take", "--domain", "api", "--count", "11", "user=alice")
	_, why, found := strings.Cut(out, "\nwhy: ratelimitd ")
	if why, _, _ = strings.Cut(why, "\n"); code != 3 || !found {
		t.Fatalf("11 of 10 requests exit with %d: %s", code, out)
	}
	for _, args := range []string{why, "inspect --domain api user=alice"} {
		out, stderr, code := commandEnv(t, env, strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, "0 of 10 left") {
			t.Errorf("%s exits with %d: %s%s", args, code, out, stderr)
		}
	}
	if out, _, _ := commandEnv(t, env, strings.Fields(why)...); !strings.HasPrefix(out, "It would be denied: the limit without a name of user=alice (10 at once, then one an hour) has 0 left") {
		t.Errorf("%s says %s", why, out)
	}
	if _, stderr, code := commandEnv(t, env, "reset", "--domain", "api", "user=alice"); code != 1 || !strings.Contains(stderr, "no token was given") {
		t.Errorf("reset exits with %d: %s", code, stderr)
	}
}

func TestCheckShowsLimitsAndTheirErrors(t *testing.T) {
	t.Parallel()
	out, stderr, code := command(t, "check", "../deploy/limits")
	if code != 0 || stderr != "" {
		t.Errorf("check of the examples exits with %d: %q", code, stderr)
	}
	for _, want := range []string{"domain api (", "10 at once, then one every 6s", "5 at once, then 2 a second", "10,000 requests a calendar month in UTC, next reset ", "unlimited", "keys placed by tenant"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}

	dir := t.TempDir()
	one := write(t, dir, "one.yaml", `domain: a
descriptors:
  - key: user
    rate_limit:
      requests: -5
      period: 90
  - key: user
    vaule: x
`)
	two := write(t, dir, "two.yaml", "domain: a\n")
	_, stderr, code = command(t, "check", dir)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	want := []string{
		one + ":5:17: descriptors[0].rate_limit.requests: found the number -5; allowed: ",
		one + ":6:15: descriptors[0].rate_limit.period: found 90 without a unit",
		one + `:7:5: descriptors[1]: found `,
		one + `:8:5: descriptors[1]: found an unknown key "vaule"`,
		two + ":1:9: domain: ",
	}
	if code != 1 || len(lines) != len(want) {
		t.Fatalf("check exits with %d:\n%s", code, stderr)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is\n%s, want\n%s", i, lines[i], want[i])
		}
	}

	never := write(t, dir, "never.yaml", `domain: b
descriptors:
  - key: path
    value: "*"
  - key: path
    value: /a*
    rate_limit: {requests: 1, period: 1s}
`)
	out, stderr, code = command(t, "check", never)
	if code != 0 || !strings.Contains(out, "1 at once, then one a second") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "warning: "+never+":5:") {
		t.Errorf("check of limits without effect exits with %d:\n%s\n%s", code, stderr, out)
	}

	if _, stderr, code := command(t, "check", filepath.Join(dir, "none.yaml")); code != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("check of nothing exits with %d: %q", code, stderr)
	}
}

func TestCheckReadsStandardInput(t *testing.T) {
	t.Parallel()
	out, _, code := commandInput(t, limitsOf3, "check", "-")
	if code != 0 || !strings.Contains(out, "domain api (standard input:2)") {
		t.Errorf("check - exits with %d:\n%s", code, out)
	}
	_, stderr, code := commandInput(t, "domain: api\nlimits: []\n", "check", "-")
	if code != 1 || !strings.HasPrefix(stderr, "standard input:2:1: ") {
		t.Errorf("check - of a bad file exits with %d: %q", code, stderr)
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	t.Parallel()
	out, stderr, code := commandInput(t, limitsOf3, "check", "--json", "-")
	const want = `{"errors":[],"warnings":[],"domains":[{"name":"api","file":"standard input","line":2,"hash_tag":"","unmatched":"default","rules":[` +
		`{"path":"user","file":"standard input","line":4,"plan":"","unlimited":false,"shadow_mode":false,"quota_mode":false,"share_threshold":false,"limits":[` +
		`{"name":"per-user","algorithm":"fixed_window","requests":3,"period":"31536000s","capacity":3,"text":"3 requests a year"}]}]}]}` + "\n"
	if code != 0 || out != want || stderr != "" {
		t.Errorf("check --json exits with %d: %q\n%s", code, stderr, out)
	}
	out, stderr, code = commandInput(t, "domain: api\nlimits: []\n", "check", "--json", "-")
	if code != 1 || !strings.HasPrefix(out, `{"errors":[{"file":"standard input","line":2,"column":1,"path":"`) || stderr != "" {
		t.Errorf("check --json of a bad file exits with %d: %q\n%s", code, stderr, out)
	}
}

func TestBadSettingsEndTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "settings.yaml", "store: redis\nredis:\n  adresses: [a:1]\n  timeout: 100\n")
	for _, tc := range []struct {
		env  []string
		args []string
		want []string
	}{
		{nil, []string{"--config", file}, []string{file + ": redis.adresses", "redis.addresses", file + ": redis.timeout", "1ms to 10s"}},
		{nil, []string{"--store", "disk"}, []string{"--store", `"disk"`, "memory", "redis"}},
		{[]string{"RATELIMITD_MEMORY_MAX_KEYS=many"}, nil, []string{"RATELIMITD_MEMORY_MAX_KEYS", "many"}},
		{nil, []string{"--grpc-address", "nowhere"}, []string{"--grpc-address", "host:port"}},
		{nil, []string{"--limits-path", filepath.Join(dir, "none")}, []string{"limits", "no such file"}},
		{nil, []string{"--limits-path", t.TempDir(), "--grpc-address", "192.0.2.1:1"}, []string{"grpc.address", "192.0.2.1:1"}},
		{nil, []string{"--no-such-flag"}, []string{"no-such-flag"}},
		{nil, []string{"--config", filepath.Join(dir, "none.yaml")}, []string{"none.yaml"}},
	} {
		t.Run(tc.want[len(tc.want)-1], func(t *testing.T) {
			d := launch(t, tc.env, tc.args...)
			if code := d.wait(); code != 1 {
				t.Errorf("serve %v exits with %d", tc.args, code)
			}
			for _, want := range tc.want {
				if !strings.Contains(d.logText(), want) {
					t.Errorf("serve %v says %q, which lacks %q", tc.args, d.logText(), want)
				}
			}
		})
	}

	bad := write(t, dir, "bad.yaml", "domain: a\nlimits: []\n")
	d := launch(t, nil, "--limits-path", bad)
	if code := d.wait(); code != 1 || !strings.Contains(d.logText(), bad+`:2:1: `) {
		t.Errorf("serve with a bad limits file exits with %d:\n%s", code, d.logText())
	}

	write(t, dir, "api.yaml", limitsOf3)
	d = launch(t, []string{"RATELIMITD_SERVICE_HOST=10.0.0.1", "RATELIMITD_SERVICE_PORT=8081", "RATELIMITD_STOER=redis"}, "--limits-path", filepath.Join(dir, "api.yaml"))
	d.waitForLog("msg=serving")
	if log := d.logText(); !strings.Contains(log, "RATELIMITD_STOER") || !strings.Contains(log, "RATELIMITD_STORE") || strings.Contains(log, "SERVICE_HOST") {
		t.Errorf("unknown variables give the log\n%s", log)
	}
}

func TestTermDrainsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "api.yaml", limitsOf3)
	d := start(t, "--limits-path", dir, "--drain-delay", "10m")
	d.signal(syscall.SIGTERM)
	d.waitForLog("msg=stopping")
	if out, _, code := command(t, "health", "--address", d.grpc); code != 1 || out != "NOT_SERVING\n" {
		t.Errorf("health while draining exits with %d: %q", code, out)
	}
	if status, body := get(t, "http://"+d.http+"/healthcheck"); status != 500 || !strings.Contains(body, "stopping") {
		t.Errorf("/healthcheck while draining: %d %q", status, body)
	}
	if !ok(d.ask("api", 1, "user=late")) {
		t.Error("a request while draining is denied")
	}
	if code := d.stop(os.Interrupt); code != 0 { // the second signal cuts the delay short
		t.Errorf("the daemon exits with %d", code)
	}
}

// The signal to stop is heard however many others come.
func TestTermIsHeardAfterAFloodOfHangups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "api.yaml", limitsOf3)
	d := start(t, "--limits-path", dir, "--drain-delay", "0s")
	for range 200 {
		d.signal(syscall.SIGHUP)
	}
	if code := d.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("the daemon exits with %d", code)
	}
}

func TestLimitsPathThatIsAPipeIsRefused(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "api.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := command(t, "check", pipe); code != 1 || !strings.Contains(stderr, "neither a file nor a folder") {
		t.Errorf("check of a pipe exits with %d: %q", code, stderr)
	}
}

func TestChangedLimitsFilesAreLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "api.yaml", limitsOf3)
	d := start(t, "--limits-path", dir)
	limit := func(domain string) uint32 {
		r := d.ask(domain, 1, fmt.Sprint("user=", domain))
		return r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()
	}
	if n := limit("api"); n != 3 {
		t.Fatalf("the limit is %d, want 3", n)
	}
	write(t, dir, "api.yaml", strings.Replace(limitsOf3, "requests: 3", "requests: 30", 1))
	asynctest.Eventually(t, "an edited file is loaded", func() bool { return limit("api") == 30 })
	if r := d.ask("api", 28, "user=api"); r.GetStatuses()[0].GetLimitRemaining() > 0 && ok(r) {
		t.Error("the count did not go on under the new numbers")
	}

	write(t, dir, "more.yaml", strings.Replace(limitsOf3, "domain: api", "domain: more", 1))
	asynctest.Eventually(t, "a new file is loaded", func() bool { return limit("more") == 3 })
	if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "a removed file is forgotten", func() bool { return limit("more") == 0 })

	write(t, dir, "api.yaml", "domain: api\ndescriptors: 5\n")
	d.waitForLog("level=ERROR")
	if n := limit("api"); n != 30 {
		t.Errorf("after a bad edit the limit is %d, want 30 still", n)
	}
	// The error is logged a moment before it is shown.
	asynctest.Eventually(t, "/rlconfig shows the error, and the limits in force", func() bool {
		status, body := get(t, "http://"+d.admin+"/rlconfig")
		return status == 200 && strings.Contains(body, "30 requests a year") && strings.Contains(body, "#   "+filepath.Join(dir, "api.yaml")+":2:14: descriptors: ")
	})

	write(t, dir, "api.yaml", strings.Replace(limitsOf3, "requests: 3", "requests: 31", 1))
	d.signal(syscall.SIGHUP)
	asynctest.Eventually(t, "SIGHUP loads", func() bool { return limit("api") == 31 })
}
