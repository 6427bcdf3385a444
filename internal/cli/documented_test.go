package cli_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Each command of the page about steering does what it says.
func TestSteeringAsDocumented(t *testing.T) {
	page, err := filepath.Abs("../../docs/steer.md")
	if err != nil {
		t.Fatal(err)
	}
	// The page has a date that people read without wonder, and that passes.
	later := func(text string) string { return strings.ReplaceAll(text, "2026-12-31", "2254-12-31") }
	commands := clitest.Blocks(t, page, "sh")
	t.Chdir(t.TempDir())
	makeToken, _, _ := strings.Cut(commands[0], " > alice.token")
	token, stderr, code := clitest.Run(t, "", strings.Fields(makeToken)...)
	if code != 0 {
		t.Fatalf("%s exits with %d: %s", makeToken, code, stderr)
	}
	if err := os.WriteFile("customers.csv", []byte(later(clitest.Blocks(t, page, "csv")[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.StartDaemon(t, clitest.Blocks(t, page, "yaml")[0], "tokens.yaml")
	t.Setenv(dial.TokenVariable, strings.TrimSpace(token))
	// What reset forgets.
	if _, stderr, code := clitest.Run(t, "", "ratelimitd", "take", "--domain", "api", "tenant=acme"); code != 0 {
		t.Fatalf("take exits with %d: %s", code, stderr)
	}
	want := []string{
		"created    tenant=acme of api: plan pro, contract 4711\n",
		"allows: 999,999 of 1,000,000 left",
		"deleted    tenant=acme of api: nothing assigned\n           before: plan pro, contract 4711\n",
		"created    tenant=acme of api: plan pro, 5,000,000 a month, contract 4712\n",
		"replaced   tenant=acme of api: plan pro, 5,000,000 a month, contract 4712; until to",
		"replaced   tenant=acme of api: plan pro, 5,000,000 a month, contract 4712\n           before: plan pro, 5,000,000 a month, contract 4712; until to",
		"would be replaced   tenant=acme of api: plan pro, 5,000,000 a month, contract 4712; until to",
		"           undone: the change by alice, today ",
		"replaced   tenant=acme of api: plan pro, 5,000,000 a month, starts 15, time zone Europe/Berlin; until to",
		"replaced   tenant=acme of api: plan pro, 5,000,000 a month; until to",
		"created    tenant=mallory of api: until tomorrow ",
		"deleted    tenant=mallory of api: nothing assigned\n           before: until tomorrow ",
		"It would pass: ",
		"tenant=acme: allowed",
		"reset  tenant=acme of api: month",
		"4 rows of 3 subjects: would be 2 created, 1 replaced, 0 unchanged",
		"4 rows of 3 subjects: 2 created, 1 replaced, 0 unchanged",
		"domain,entries,plan,limits,starts,time_zone,unlimited,blocked,until,reason\napi,tenant=acme,pro,month=5000000,,,,,,contract 4712\napi,tenant=acme,,month=6000000,,,,,2255-01-01T00:00:00Z,migration\n",
		"4 rows of 3 subjects: 0 created, 0 replaced, 3 unchanged",
		"would be deleted    tenant=acme of api: nothing assigned\n           before: plan pro, 5,000,000 a month, contract 4712; until 2254-12-31 6,000,000 a month, migration\n",
		"  alice  tenant=acme of api: reset month; reason: ticket 815\n",
		"tenant=initech",
	}
	for _, line := range strings.Split(later(strings.Join(commands[1:], "")), "\n") {
		if !strings.HasPrefix(line, "ratelimitd ") || strings.HasPrefix(line, "ratelimitd serve ") {
			continue
		}
		line, file, redirected := strings.Cut(line, " > ")
		out, stderr, code := clitest.Run(t, "", clitest.Words(line)...)
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

// The page about upgrades moves assignments from one daemon to another.
func TestAssignmentsMoveAsDocumented(t *testing.T) {
	page, err := filepath.Abs("../../docs/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	const limits = "domain: api\ndescriptors: [{key: tenant, plans: {pro: {requests: 1, period: 1s}}}]\n"
	sum := sha256.Sum256([]byte("secret"))
	tokens := filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum))
	t.Chdir(t.TempDir())
	t.Setenv(dial.TokenVariable, "secret")
	export, file, _ := strings.Cut(clitest.Blocks(t, page, "sh")[0], " > ")
	file, assign, _ := strings.Cut(file, "\n")
	clitest.StartDaemon(t, limits, tokens)
	if _, stderr, code := clitest.Run(t, "", "ratelimitd", "assign", "--domain", "api", "tenant=acme", "--plan", "pro"); code != 0 {
		t.Fatal(stderr)
	}
	out, stderr, code := clitest.Run(t, "", clitest.Words(export)...)
	if code != 0 {
		t.Fatalf("%s exits with %d: %s", export, code, stderr)
	}
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.StartDaemon(t, limits, tokens)
	if out, stderr, code := clitest.Run(t, "", clitest.Words(strings.TrimSpace(assign))...); code != 0 || out != "1 row: 1 created, 0 replaced, 0 unchanged\n" {
		t.Errorf("%s exits with %d: %s%s", assign, code, out, stderr)
	}
}

// The daemon of make run has the plans of the page about steering.
func TestExamplesHaveTheDocumentedPlans(t *testing.T) {
	page := filetest.Write(t, t.TempDir(), "api.yaml", clitest.Blocks(t, "../../docs/steer.md", "yaml")[0])
	out, stderr, code := clitest.Run(t, "", "ratelimitd", "check", "--diff", page, "../../deploy/limits/api.yaml")
	if code != cmdline.ExitDifferent || strings.Contains(out, "tenant") {
		t.Errorf("beside the page the examples exit with %d: %s%s", code, stderr, out)
	}
}

// The real API answers as the fake does.
func TestCommandsAgainstTheAdminAPI(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	tokens := filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum))
	clitest.StartDaemon(t, `
domain: api
descriptors:
- key: tenant
  plans:
    free: {name: month, requests: 2, period: 30d}
    pro: {name: month, requests: 5, period: 30d}
  plan: free
`, tokens)
	if _, stderr, code := clitest.Run(t, "", "ratelimitd", "assignments"); code != cmdline.ExitError || !strings.Contains(stderr, " refuses: who calls is not known: ") || !strings.Contains(stderr, "no token was given: ") {
		t.Errorf("without a token assignments exits with %d: %s", code, stderr)
	}
	t.Setenv(dial.TokenVariable, "secret")
	for _, c := range []struct {
		args, input string
		code        int
		want        string
	}{
		{"unassign --domain api tenant=a", "", 0, "unchanged  tenant=a of api: nothing assigned\n"},
		{"unblock --domain api tenant=a", "", 0, "unchanged  tenant=a of api: nothing assigned\n"},
		{"assign --domain api tenant=a --plan none", "", cmdline.ExitError, "refused    tenant=a of api: "},
		{"assign --domain none tenant=a --plan pro", "", cmdline.ExitError, "refused    tenant=a of none: "},
		{"assign --domain api tenant=a --plan pro --dry-run", "", 0, "would be created    tenant=a of api: plan pro\n"},
		{"assignments", "", 0, "nothing is assigned\n"},
		{"assign --domain api tenant=a --plan pro", "", 0, "created    tenant=a of api: plan pro\n"},
		{"take --domain api --cost 5 tenant=a", "", 0, "allowed  tenant=a  month: 0 left; 5 at once, then one every 6d; full again in 30d\n"},
		{"take --domain api --peek tenant=a", "", cmdline.ExitDenied, "denied   tenant=a  month: 0 left; 5 at once, then one every 6d; try again in 6d; full again in 30d\n"},
		{"explain --domain api tenant=a", "", 0, "It would be denied: "},
		{"reset --domain api tenant=a", "", 0, "reset  tenant=a of api: month\n"},
		{"take --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 5 left;"},
		{"unblock --domain api tenant=a", "", 0, "unchanged  tenant=a of api: plan pro\n"},
		{"block --domain api tenant=a --for 1h", "", 0, "replaced   tenant=a of api: plan pro; until "},
		{"take --domain api --peek tenant=a", "", cmdline.ExitDenied, ""},
		{"assign --from -", "domain,entries,plan\napi,tenant=a,free\n", 0, "1 row: 0 created, 1 replaced, 0 unchanged\n"},
		{"take --domain api --peek tenant=a", "", cmdline.ExitDenied, "denied   tenant=a  blocked: denies all; try again in "},
		{"unblock --domain api tenant=a", "", 0, "replaced   tenant=a of api: plan free\n           before: plan free; until "},
		{"take --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 2 left;"},
		{"assign --domain api tenant=a --limit month=4 --until 2254-12-31", "", 0, "replaced   tenant=a of api: plan free; until 2254-12-31 4 a month\n"},
		{"assign --domain api tenant=a --limit month=4 --until 2254-12-31", "", 0, "unchanged  tenant=a of api: plan free; until 2254-12-31 4 a month\n"},
		{"assign --domain api tenant=a --limit mnth=4", "", cmdline.ExitError, "refused    tenant=a of api: numbers: found the limit \"mnth\", which the rule tenant (plan free) does not have (\"month\"?); allowed: \"month\"\n"},
		{"take --domain api --peek tenant=a", "", 0, "allowed  tenant=a  month: 4 left;"},
		{"assign --domain api tenant=a --unlimited --for 1h", "", 0, "replaced   tenant=a of api: plan free; until 2254-12-31 4 a month; until "},
		{"take --domain api --peek tenant=a", "", 0, "allowed  tenant=a  no limit applies\n"},
		{"unassign --domain api tenant=a --unlimited", "", 0, "replaced   tenant=a of api: plan free; until 2254-12-31 4 a month\n"},
		{"unassign --domain api tenant=a --limit mnth", "", 0, "unchanged  tenant=a of api: plan free; until 2254-12-31 4 a month\n"},
		{"assign --domain api tenant=a --plan free --only", "", 0, "unchanged  tenant=a of api: plan free; until 2254-12-31 4 a month\n"},
		{"undo --domain api tenant=a --dry-run", "", 0, "would be replaced   tenant=a of api: plan free; until 2254-12-31 4 a month; until "},
		{"unassign --domain api tenant=a --temporary", "", 0, "replaced   tenant=a of api: plan free\n"},
		{"assign --from -", clitest.ManyRows(2500), 0, "2500 rows: 2500 created, 0 replaced, 0 unchanged\n"},
		{"assign --from - --json", clitest.ManyRows(2600), 0, `{"rows":2600,"subjects":2600,"created":100,"replaced":0,"unchanged":2500,`},
		{"assignments --prefix tenant=t2599", "", 0, "DOMAIN  ENTRIES       BY   AT "},
		{"audit --limit 1 --json", "", 0, `{"id":"`},
		{"inspect --domain api tenant=t1 --json", "", 0, `{"descriptor":{`},
		{"explain --domain api tenant=t1 tenant=t2 --json", "", 0, `{"domain_known":true,`},
		{"reset --domain api tenant=t1 --force --json", "", 0, `{"limits":["month"]`},
	} {
		out, stderr, code := clitest.Run(t, c.input, append([]string{"ratelimitd"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s exits with %d: %s\n%s\nwant %d and\n%s", c.args, code, stderr, out, c.code, c.want)
		}
	}
	exported, _, _ := clitest.Run(t, "", "ratelimitd", "assignments", "--export", "jsonl")
	if out, stderr, code := clitest.Run(t, "", "ratelimitd", "unassign", "--domain", "api", "--all", "--yes"); code != 0 || out != "2601 assignments of api ended\n" {
		t.Errorf("all are ended with %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := clitest.Run(t, exported, "ratelimitd", "assign", "--from", "-"); code != 0 || out != "2601 rows: 2601 created, 0 replaced, 0 unchanged\n" {
		t.Errorf("what was exported is imported with %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := clitest.Run(t, exported, "ratelimitd", "assign", "--from", "-"); code != 0 || out != "2601 rows: 0 created, 0 replaced, 2601 unchanged\n" {
		t.Errorf("what was exported is imported with %d: %s%s", code, out, stderr)
	}
}

// An import that is refused as a whole leaves nothing in doubt.
func TestRefusedImportChangesNothing(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	clitest.StartDaemon(t, "domain: api\ndescriptors: [{key: tenant, plans: {pro: {requests: 1, period: 1s}}}]\n",
		filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: dashboard, role: viewer, sha256: %x}\n", sum)))
	t.Setenv(dial.TokenVariable, "secret")
	out, stderr, code := clitest.Run(t, "domain,entries,plan\napi,tenant=a,pro\n", "ratelimitd", "assign", "--from", "-")
	const want = `standard input, lines 2 to 2: `
	if code != cmdline.ExitError || out != "1 row: 0 created, 0 replaced, 0 unchanged, 1 failed\n" || !strings.Contains(stderr, want) ||
		!strings.Contains(stderr, `to change assignments takes the role operator, and "dashboard" has the role viewer`) {
		t.Errorf("exits with %d: %s%s", code, out, stderr)
	}
}

// Who may not do something reads what it takes, in the words of the command line.
func TestRefusedCommandsSayWhatToDo(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	limits := "domain: api\ndescriptors: [{key: tenant, plans: {pro: {requests: 1, period: 1s}}}]\n"
	tokens := filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: dashboard, role: viewer, sha256: %x}\n", sum))
	for _, c := range []struct{ name, tokens, token, advice string }{
		{"without a tokens file", "", "", "no token was given: "},
		{"with another's token", tokens, "secret", "give a token with the right to do this: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			clitest.StartDaemon(t, limits, c.tokens)
			t.Setenv(dial.TokenVariable, c.token)
			for args, want := range map[string]string{
				"block --domain api tenant=a":                "to change assignments takes the role operator, and ",
				"unblock --domain api tenant=a":              "to change assignments takes the role operator, and ",
				"assign --domain api tenant=a --plan pro":    "to change assignments takes the role operator, and ",
				"unassign --domain api tenant=a":             "to change assignments takes the role operator, and ",
				"reset --domain api tenant=a --reason night": "to reset takes the role support, and ",
				"top api": "to see who is over takes the role support, and ",
			} {
				_, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
				if code != cmdline.ExitError || !strings.Contains(stderr, " refuses: "+want) || !strings.Contains(stderr, "\n"+c.advice) || !strings.Contains(stderr, dial.TokenVariable) {
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
	for _, text := range clitest.Blocks(t, page, "sh") {
		if strings.Contains(text, "-X PUT") {
			script += text
		}
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("token", []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("secret"))
	clitest.StartDaemon(t, "domain: api\ndescriptors: [{key: tenant, plans: {free: {requests: 1, period: 1s}, pro: {requests: 9, period: 1s}}}]\n",
		filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: billing, role: operator, sha256: %x}\n", sum)))
	out, err := exec.Command("sh", "-ec", strings.ReplaceAll(script, "127.0.0.1:6070", os.Getenv("RATELIMITD_ADMIN_ADDRESS"))).Output()
	if err != nil || strings.Count(string(out), "CHANGE_OUTCOME_CREATED") != 1 || strings.Count(string(out), "CHANGE_OUTCOME_REPLACED") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}
