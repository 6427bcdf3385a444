package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// blocks returns the fenced blocks of a page in one language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}

// startDaemon starts a daemon with a store in memory in this process, whose addresses
// are in the environment.
func startDaemon(t *testing.T, limits, tokens string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	live := limitsfile.NewLive(writeText(t, "limits.yaml", limits), log)
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	var members *access.LiveMembers
	if tokens != "" {
		members = access.NewLiveMembers(tokens, log)
		if err := members.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	memory := memstore.New(memstore.Options{MaxKeys: 1000})
	var srv *server.Server
	assignments, err := filestore.Open(filestore.Options{Hooks: assign.Hooks{Settle: func() { srv.Settle() }, Forget: memory.Forget, Counted: memory.Counted}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err = server.New(server.Options{
		GRPC:     server.GRPC{Address: "127.0.0.1:0"},
		Admin:    server.Admin{Address: "127.0.0.1:0", Members: members, Assignments: assignments},
		Assigned: assignments.Table(),
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 10, Entries: 10, Bytes: 10_000, Takes: 128}},
		Tops:     decide.Tops{Denied: true, Used: true, Budget: top.NewBudget(64 << 20)},
		Live:     live, Store: memory, Metrics: prometheus.NewRegistry(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan time.Duration), make(chan error)
	go func() { ended <- srv.Run(stop) }()
	t.Cleanup(func() {
		stop <- 0
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = assignments.Close()
		_ = memory.Close()
	})
	t.Setenv("RATELIMITD_GRPC_ADDRESS", srv.Address("grpc"))
	t.Setenv("RATELIMITD_ADMIN_ADDRESS", srv.Address("admin"))
}

// Each command of the page about steering does what it says.
func TestSteeringAsDocumented(t *testing.T) {
	page, err := filepath.Abs("../../docs/steer.md")
	if err != nil {
		t.Fatal(err)
	}
	// The page has a date that people read without wonder, and that passes.
	later := func(text string) string { return strings.ReplaceAll(text, "2026-12-31", "2254-12-31") }
	commands := blocks(t, page, "sh")
	t.Chdir(t.TempDir())
	makeToken, _, _ := strings.Cut(commands[0], " > support.token")
	token, stderr, code := runWords(t, "", strings.Fields(makeToken)...)
	if code != 0 {
		t.Fatalf("%s exits with %d: %s", makeToken, code, stderr)
	}
	if err := os.WriteFile("customers.csv", []byte(later(blocks(t, page, "csv")[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, blocks(t, page, "yaml")[0], "tokens.yaml")
	t.Setenv(tokenVariable, strings.TrimSpace(token))
	want := []string{
		"created    tenant=acme of api: plan pro (reason: \"contract 4711\")",
		"allowed  tenant=acme  month: 999,999 left; 1,000,000 requests every 30 days; full again in ",
		"deleted    tenant=acme of api: nothing assigned; until now plan pro",
		"created    tenant=acme of api: plan pro\n",
		"replaced   tenant=acme of api: plan pro, limit month=5000000 until 2255-01-01T00:00:00Z (",
		"created    tenant=mallory of api: blocked until ",
		"deleted    tenant=mallory of api: nothing assigned; until now blocked",
		"It would pass: ",
		"tenant=acme: allowed",
		"reset  tenant=acme of api: month",
		"3 rows: would be 2 created, 0 replaced, 1 unchanged",
		"3 rows: 2 created, 0 replaced, 1 unchanged",
		"domain,entries,plan,plan_until,limits,limits_until,unlimited,unlimited_until,blocked,blocked_until,reason\napi,tenant=acme,pro,,month=5000000,2255-01-01T00:00:00Z,,,,,migration\n",
		"3 rows: 0 created, 0 replaced, 3 unchanged",
		"would be deleted    tenant=acme of api: nothing assigned; until now plan pro, limit month=5000000",
		"  support-desk  tenant=acme of api: reset month (reason: \"ticket 815\")\n",
		"tenant=initech",
	}
	for _, line := range strings.Split(later(strings.Join(commands[1:], "")), "\n") {
		if !strings.HasPrefix(line, "ratelimitd ") || strings.HasPrefix(line, "ratelimitd serve ") {
			continue
		}
		line, file, redirected := strings.Cut(line, " > ")
		out, stderr, code := runWords(t, "", wordsOf(line)...)
		if redirected {
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if len(want) == 0 {
			t.Fatalf("more commands than expected: %s", line)
		}
		if code != 0 || stderr != "" || !strings.Contains(out, want[0]) {
			t.Errorf("%s\nexits with %d: %s\n%s\nwant\n%s", line, code, stderr, out, want[0])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("no command prints %q", want)
	}
}

// The daemon of make run has the plans of the page about steering.
func TestExamplesHaveTheDocumentedPlans(t *testing.T) {
	page := writeText(t, "api.yaml", blocks(t, "../../docs/steer.md", "yaml")[0])
	out, stderr, code := runWords(t, "", "ratelimitd", "check", "--diff", page, "../../deploy/limits/api.yaml")
	if code != exitDifferent || strings.Contains(out, "tenant") {
		t.Errorf("beside the page the examples exit with %d: %s%s", code, stderr, out)
	}
}

// The real API answers as the fake does.
func TestCommandsAgainstTheAdminAPI(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	tokens := writeText(t, "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum))
	startDaemon(t, `
domain: api
descriptors:
- key: tenant
  plans:
    free: {name: month, requests: 2, period: 30d}
    pro: {name: month, requests: 5, period: 30d}
  plan: free
`, tokens)
	if _, stderr, code := runWords(t, "", "ratelimitd", "assignments"); code != exitError || !strings.Contains(stderr, " refuses: who calls is not known: ") || !strings.Contains(stderr, "no token was given: ") {
		t.Errorf("without a token assignments exits with %d: %s", code, stderr)
	}
	t.Setenv(tokenVariable, "secret")
	for _, c := range []struct {
		args, input string
		code        int
		want        string
	}{
		{"unassign --domain api tenant=a", "", 0, "unchanged  tenant=a of api: nothing assigned\n"},
		{"unblock --domain api tenant=a", "", 0, "unchanged  tenant=a of api: nothing assigned\n"},
		{"assign --domain api tenant=a --plan none", "", exitError, "refused    tenant=a of api: "},
		{"assign --domain none tenant=a --plan pro", "", exitError, "refused    tenant=a of none: "},
		{"assign --domain api tenant=a --plan pro --dry-run", "", 0, "would be created    tenant=a of api: plan pro\n"},
		{"assignments", "", 0, "nothing is assigned\n"},
		{"assign --domain api tenant=a --plan pro", "", 0, "created    tenant=a of api: plan pro\n"},
		{"query --domain api --cost 5 tenant=a", "", 0, "allowed  tenant=a  month: 0 left; 5 at once, then one every 6d; full again in 30d\n"},
		{"query --domain api --peek tenant=a", "", exitDenied, "denied   tenant=a  month: 0 left; 5 at once, then one every 6d; try again in 6d; full again in 30d\n"},
		{"explain --domain api tenant=a", "", 0, "It would be denied: "},
		{"reset --domain api tenant=a", "", 0, "reset  tenant=a of api: month\n"},
		{"query --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 5 left;"},
		{"unblock --domain api tenant=a", "", 0, "unchanged  tenant=a of api: plan pro\n"},
		{"block --domain api tenant=a --for 1h", "", 0, "replaced   tenant=a of api: blocked until "},
		{"query --domain api --peek tenant=a", "", exitDenied, ""},
		{"assign --from -", "domain,entries,plan\napi,tenant=a,free\n", 0, "1 row: 0 created, 1 replaced, 0 unchanged\n"},
		{"query --domain api --peek tenant=a", "", exitDenied, "denied   tenant=a  blocked: denies all; try again in "},
		{"unblock --domain api tenant=a", "", 0, "replaced   tenant=a of api: plan free; until now blocked until "},
		{"query --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 2 left;"},
		{"assign --domain api tenant=a --limit month=4 --until 2254-12-31", "", 0, "replaced   tenant=a of api: plan free, limit month=4 until 2255-01-01T00:00:00Z ("},
		{"assign --domain api tenant=a --limit month=4 --until 2254-12-31", "", 0, "unchanged  tenant=a of api: plan free, limit month=4 until 2255-01-01T00:00:00Z ("},
		{"assign --domain api tenant=a --limit mnth=4", "", exitError, "refused    tenant=a of api: numbers: found the limit \"mnth\", which the rule tenant (plan free) does not have (\"month\"?); allowed: \"month\"\n"},
		{"query --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 4 left;"},
		{"assign --domain api tenant=a --unlimited --for 1h", "", 0, "replaced   tenant=a of api: unlimited until "},
		{"query --domain api --peek tenant=a", "", 0, "allowed  tenant=a  no limit applies\n"},
		{"unassign --domain api tenant=a --unlimited", "", 0, "replaced   tenant=a of api: plan free, limit month=4 until "},
		{"unassign --domain api tenant=a --limit mnth", "", 0, "unchanged  tenant=a of api: plan free, limit month=4 until "},
		{"assign --domain api tenant=a --plan free --only", "", 0, "replaced   tenant=a of api: plan free; until now plan free, limit month=4 until "},
		{"assign --from -", manyRows(2500), 0, "2500 rows: 2500 created, 0 replaced, 0 unchanged\n"},
		{"assign --from - --json", manyRows(2600), 0, `{"rows":2600,"created":100,"replaced":0,"unchanged":2500,`},
		{"assignments --prefix tenant=t2599", "", 0, "DOMAIN  ENTRIES       BY   AT "},
		{"audit --most 1 --json", "", 0, `{"id":"`},
		{"inspect --domain api tenant=t1 --json", "", 0, `{"descriptor":{`},
	} {
		out, stderr, code := runWords(t, c.input, append([]string{"ratelimitd"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s exits with %d: %s\n%s\nwant %d and\n%s", c.args, code, stderr, out, c.code, c.want)
		}
	}
	exported, _, _ := runWords(t, "", "ratelimitd", "assignments", "--export", "jsonl")
	if out, stderr, code := runWords(t, "", "ratelimitd", "unassign", "--domain", "api", "--all"); code != 0 || out != "2601 assignments of api ended\n" {
		t.Errorf("all are ended with %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := runWords(t, exported, "ratelimitd", "assign", "--from", "-"); code != 0 || out != "2601 rows: 2601 created, 0 replaced, 0 unchanged\n" {
		t.Errorf("what was exported is imported with %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := runWords(t, exported, "ratelimitd", "assign", "--from", "-"); code != 0 || out != "2601 rows: 0 created, 0 replaced, 2601 unchanged\n" {
		t.Errorf("what was exported is imported with %d: %s%s", code, out, stderr)
	}
}

// An import that is refused as a whole leaves nothing in doubt.
func TestRefusedImportChangesNothing(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	startDaemon(t, "domain: api\ndescriptors: [{key: tenant, plans: {pro: {requests: 1, period: 1s}}}]\n",
		writeText(t, "tokens.yaml", fmt.Sprintf("- {name: dashboard, role: viewer, sha256: %x}\n", sum)))
	t.Setenv(tokenVariable, "secret")
	out, stderr, code := runWords(t, "domain,entries,plan\napi,tenant=a,pro\n", "ratelimitd", "assign", "--from", "-")
	const want = `standard input, line 2: `
	if code != exitError || out != "1 row: 0 created, 0 replaced, 0 unchanged, 1 not reached\n" || !strings.Contains(stderr, want) ||
		!strings.Contains(stderr, `to change assignments takes the role operator, and "dashboard" has the role viewer`) {
		t.Errorf("exits with %d: %s%s", code, out, stderr)
	}
}

// Who may not do something reads what it takes, in the words of the command line.
func TestRefusedCommandsSayWhatToDo(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	limits := "domain: api\ndescriptors: [{key: tenant, plans: {pro: {requests: 1, period: 1s}}}]\n"
	tokens := writeText(t, "tokens.yaml", fmt.Sprintf("- {name: dashboard, role: viewer, sha256: %x}\n", sum))
	for _, c := range []struct{ name, tokens, token, advice string }{
		{"without a tokens file", "", "", "no token was given: "},
		{"with another's token", tokens, "secret", "give a token of somebody who may do this: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			startDaemon(t, limits, c.tokens)
			t.Setenv(tokenVariable, c.token)
			for args, want := range map[string]string{
				"block --domain api tenant=a":                "to assign or block takes the role operator, and ",
				"unblock --domain api tenant=a":              "to end an assignment or a block takes the role operator, and ",
				"assign --domain api tenant=a --plan pro":    "to change assignments takes the role operator, and ",
				"unassign --domain api tenant=a":             "to change assignments takes the role operator, and ",
				"reset --domain api tenant=a --reason night": "to reset takes the role support, and ",
				"top api": "to see who is over takes the role support, and ",
			} {
				_, stderr, code := runWords(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
				if code != exitError || !strings.Contains(stderr, " refuses: "+want) || !strings.Contains(stderr, "\n"+c.advice) || !strings.Contains(stderr, tokenVariable) {
					t.Errorf("%s exits with %d: %s", args, code, stderr)
				}
				for _, method := range []string{"PutAssignments", "PatchAssignments", "DeleteAssignment", "PermissionDenied"} {
					if strings.Contains(stderr, method) {
						t.Errorf("%s speaks of %s: %s", args, method, stderr)
					}
				}
			}
		})
	}
}

// The page about access shows how to change what was read, with curl.
func TestChangeOfAVersionAsDocumented(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	page, err := filepath.Abs("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	var script string
	for _, text := range blocks(t, page, "sh") {
		if strings.Contains(text, "-X PUT") {
			script += text
		}
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("token", []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("secret"))
	startDaemon(t, "domain: api\ndescriptors: [{key: tenant, plans: {free: {requests: 1, period: 1s}, pro: {requests: 9, period: 1s}}}]\n",
		writeText(t, "tokens.yaml", fmt.Sprintf("- {name: billing, role: operator, sha256: %x}\n", sum)))
	out, err := exec.Command("sh", "-ec", strings.ReplaceAll(script, "127.0.0.1:6070", os.Getenv("RATELIMITD_ADMIN_ADDRESS"))).Output()
	if err != nil || strings.Count(string(out), "CHANGE_OUTCOME_CREATED") != 1 || strings.Count(string(out), "CHANGE_OUTCOME_REPLACED") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

// wordsOf splits a line as a shell does where it has no quotes but double ones.
func wordsOf(line string) []string {
	var words []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// Who asks about a domain that there is not is told so.
func TestUnknownDomainIsToldOf(t *testing.T) {
	f := startFakeAdmin(t)
	for args, want := range map[string]string{
		"assignments --domain logn": "no limits have the domain \"logn\"\n", "audit --domain logn": "no limits have the domain \"logn\"\n",
		"assignments --domain login": "", "assignments": "",
	} {
		if _, stderr, code := f.run(t, strings.Fields(args)...); code != 0 || stderr != want {
			t.Errorf("%s exits with %d: %q, want %q", args, code, stderr, want)
		}
	}
}

// A counter that the values of a pattern share is reset for all of them, and the
// command says so.
func TestResetOfASharedCounterIsTold(t *testing.T) {
	t.Setenv(tokenVariable, "secret")
	sum := sha256.Sum256([]byte("secret"))
	startDaemon(t, `
domain: api
descriptors:
  - key: path
    value: /api/*
    share_threshold: true
    rate_limit: {requests: 10, period: 1m}
  - key: user
    rate_limit: {requests: 10, period: 1m}
`, writeText(t, "tokens.yaml", fmt.Sprintf("- {name: help, role: support, sha256: %x}\n", sum)))
	for args, want := range map[string]string{
		"path=/api/x": "all values of path=/api/* share this counter (share_threshold), so it was reset for all of them\n",
		"user=x":      "",
	} {
		runWords(t, "", "ratelimitd", "query", "--domain", "api", args)
		out, stderr, code := runWords(t, "", "ratelimitd", "reset", "--domain", "api", args)
		if code != 0 || out != "reset  "+args+" of api: the limit without a name\n" || stderr != want {
			t.Errorf("%s exits with %d: %s%s", args, code, out, stderr)
		}
	}
}

// What would do nothing for anybody is refused with what was probably meant, unless it is
// forced.
func TestCommandsThatHitNothing(t *testing.T) {
	t.Setenv(tokenVariable, "secret")
	sum := sha256.Sum256([]byte("secret"))
	startDaemon(t, `
domain: api
descriptors:
- {key: tenant, plans: {pro: {name: month, requests: 5, period: 30d}}, plan: pro}
- {key: user, value: monitor, rate_limit: {unlimited: true}}
`, writeText(t, "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum)))
	const misspelt = "no rule is for descriptors that begin with tennant=mallory: a block denies only requests that send one all the same; no descriptor here has the key tennant; tenant ("
	const absent = "this changes nothing: nothing is assigned to tennant=mallory, and no rule is for descriptors that begin with it; no descriptor here has the key tennant; tenant ("
	const full = "nothing is counted for tenant=nobody: month is full"
	const noLimit = "no rule is for the descriptor tennant=nobody, so it has no limit to reset; no descriptor here has the key tennant; tenant ("
	const forced = "use --force to do it all the same\n"
	for _, c := range []struct {
		args, input string
		code        int
		out, stderr string // how they begin
		ends        string // how the second ends
	}{
		{args: "block --domain api tennant=mallory tenant=m", code: exitError, out: "refused    tennant=mallory of api: " + misspelt, ends: forced},
		{args: "block --domain api tennant=mallory --json", code: exitError, out: `{"outcome":"CHANGE_OUTCOME_REFUSED","error":"no rule is for `, ends: forced},
		{args: "block --domain api tennant=mallory --dry-run", code: exitError, out: "would be refused    tennant=mallory of api: " + misspelt, ends: forced},
		{args: "block --domain api tennant=mallory --force", out: "created    tennant=mallory of api: blocked\n", stderr: "warning: tennant=mallory of api: " + misspelt},
		{args: "unblock --domain api tennant=mallory", out: "deleted    tennant=mallory of api: "},
		{args: "unblock --domain api tennant=mallory", out: "unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tennant=mallory", out: "unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tennant=mallory --dry-run", out: "would be unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tenant=other", out: "unchanged  tenant=other of api: "},
		{args: "assign --domain api user=monitor --unlimited", code: exitError, out: "refused    user=monitor of api: the rule user=monitor is unlimited already\n", ends: forced},
		{args: "assign --domain api user=monitor --unlimited --force", out: "created    user=monitor of api: unlimited\n", stderr: "warning: user=monitor of api: the rule "},
		{args: "assign --domain api tennant=a --plan pro", code: exitError, out: `refused    tennant=a of api: plan: found "pro"; no rule that tennant=a matches, or that is below it, has plans; no descriptor here has the key tennant; `},
		{args: "reset --domain api tenant=nobody", code: exitError, stderr: "refused  tenant=nobody of api: " + full, ends: forced},
		{args: "audit --domain api tenant=nobody", out: "nothing was changed\n"},
		{args: "reset --domain api tenant=nobody --force", out: "reset  tenant=nobody of api: month\n", stderr: "warning: tenant=nobody of api: " + full},
		{args: "reset --domain api tenant=nobody --force --json", out: `{"limits":["month"],"pending":[],"warnings":["` + full, stderr: "warning: "},
		{args: "reset --domain api tennant=nobody", code: exitError, stderr: "refused  tennant=nobody of api: " + noLimit, ends: forced},
		{args: "reset --domain api tennant=nobody --force", out: "unchanged  tennant=nobody of api: no limit to reset\n", stderr: "warning: tennant=nobody of api: " + noLimit},
		{args: "reset --domain apu tenant=m", code: exitError, stderr: "refused  tenant=m of apu: domain: found \"apu\"; there is none of this name (api?)\n"},
		{args: "assign --from - --dry-run", input: "domain,entries,blocked\napi,tennant=x,true\n", out: "1 row: would be 1 created, 0 replaced, 0 unchanged, 1 with a warning\n", stderr: "warning: standard input:2: tennant=x of api: no rule is for"},
		{args: "explain --domain api tenant=m", out: "It would be denied: tenant=m is blocked.\n"},
	} {
		out, stderr, code := runWords(t, c.input, append([]string{"ratelimitd"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.HasPrefix(out, c.out) || !strings.HasPrefix(stderr, c.stderr) || !strings.HasSuffix(stderr, c.ends) || c.stderr+c.ends == "" && stderr != "" {
			t.Errorf("%s exits with %d: %s\n%s\nwant %d, %s\n%s ... %s", c.args, code, stderr, out, c.code, c.stderr, c.out, c.ends)
		}
	}
	// Rows of a file are made all the same, so that one customer keeps no others back. Of
	// many only the first are named.
	rows := "domain,entries,blocked\n"
	for i := range 1500 {
		rows += fmt.Sprintf("api,tennant=%d,true\n", i)
	}
	out, stderr, code := runWords(t, rows, "ratelimitd", "assign", "--from", "-")
	if code != 0 || out != "1500 rows: 1500 created, 0 replaced, 0 unchanged, 1500 with a warning\n" || strings.Count(stderr, "\n") != maxWarned+1 ||
		!strings.Contains(stderr, "standard input:6: tennant=4 of api: no rule is for") || !strings.HasSuffix(stderr, "only counted\n") {
		t.Errorf("an import exits with %d: %s%s", code, out, stderr)
	}
	if out, _, _ := runWords(t, "", "ratelimitd", "explain", "--domain", "api", "tenant=7"); !strings.Contains(out, "assignment to tennant=7: nothing here: its key tennant differs by one letter from tenant") {
		t.Errorf("explain says\n%s", out)
	}
}

// Pages of a long list have the same columns.
func TestPagesHaveTheSameColumns(t *testing.T) {
	var s strings.Builder
	write := listWriter(&s, "", false)
	for i, key := range []string{"tenant", "t"} {
		page := []*adminv1.Assignment{{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: key, Value: "x"}}, Plan: "pro"}}
		if err := write(page, i == 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := "DOMAIN  ENTRIES   BY  AT  ASSIGNED\napi     tenant=x  -   -   plan pro\napi     t=x       -   -   plan pro\n"; s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}
