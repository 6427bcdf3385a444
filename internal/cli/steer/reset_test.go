package steer_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// What would do nothing for anybody is refused with what was probably meant, unless it is
// forced.
func TestCommandsThatHitNothing(t *testing.T) {
	t.Setenv(dial.TokenVariable, "secret")
	sum := sha256.Sum256([]byte("secret"))
	clitest.StartDaemon(t, `
domain: api
descriptors:
- {key: tenant, plans: {pro: {name: month, requests: 5, period: 30d}}, plan: pro}
- {key: user, value: monitor, rate_limit: {unlimited: true}}
`, filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum)))
	const misspelt = "no rule is for descriptors that begin with tennant=mallory: a block denies only requests that send one anyway; no descriptor here has the key tennant; did you mean tenant ("
	const absent = "this changes nothing: nothing is assigned to tennant=mallory, and no rule is for descriptors that begin with it; no descriptor here has the key tennant; did you mean tenant ("
	const full = "nothing is counted for tenant=nobody: month is full"
	const noLimit = "no rule is for the descriptor tennant=nobody, so it has no limit to reset; no descriptor here has the key tennant; did you mean tenant ("
	const forced = "use --force to do it all the same\n"
	for _, c := range []struct {
		args, input string
		code        int
		out, stderr string // how they begin
		ends        string // how the second ends
	}{
		{args: "block --domain api tennant=mallory tenant=m", code: cmdline.ExitError, out: "refused    tennant=mallory of api: " + misspelt, ends: forced},
		{args: "block --domain api tennant=mallory --json", code: cmdline.ExitError, out: `{"outcome":"CHANGE_OUTCOME_REFUSED","error":"no rule is for `, ends: forced},
		{args: "block --domain api tennant=mallory --dry-run", code: cmdline.ExitError, out: "would be refused    tennant=mallory of api: " + misspelt, ends: forced},
		{args: "block --domain api tennant=mallory --force", out: "created    tennant=mallory of api: blocked\n", stderr: "warning: tennant=mallory of api: " + misspelt},
		{args: "unblock --domain api tennant=mallory", out: "deleted    tennant=mallory of api: "},
		{args: "unblock --domain api tennant=mallory", out: "unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tennant=mallory", out: "unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tennant=mallory --dry-run", out: "would be unchanged  tennant=mallory of api: ", stderr: "warning: tennant=mallory of api: " + absent},
		{args: "unassign --domain api tenant=other", out: "unchanged  tenant=other of api: "},
		{args: "assign --domain api user=monitor --unlimited", code: cmdline.ExitError, out: "refused    user=monitor of api: the rule user=monitor is unlimited already\n", ends: forced},
		{args: "assign --domain api user=monitor --unlimited --force", out: "created    user=monitor of api: unlimited\n", stderr: "warning: user=monitor of api: the rule "},
		{args: "assign --domain api tennant=a --plan pro", code: cmdline.ExitError, out: `refused    tennant=a of api: plan: found "pro"; no rule that tennant=a matches, or that is below it, has plans; no descriptor here has the key tennant; `},
		{args: "reset --domain api tenant=nobody", code: cmdline.ExitError, stderr: "refused  tenant=nobody of api: " + full, ends: forced},
		{args: "audit --domain api tenant=nobody", out: "nothing was changed\n"},
		{args: "reset --domain api tenant=nobody --dry-run", code: cmdline.ExitError, out: "would be refused  tenant=nobody of api: nothing is counted\n", stderr: forced, ends: forced},
		{args: "reset --domain api tenant=nobody --dry-run --force", out: "would be reset  tenant=nobody of api: month (5 of 5 left), nothing is counted\n"},
		{args: "reset --domain api tennant=nobody --dry-run --json", code: cmdline.ExitError, out: `{"limits":[],"warnings":["it has no limit to reset"]}`, stderr: forced, ends: forced},
		{args: "reset --domain api tenant=nobody --force", out: "reset  tenant=nobody of api: month\n", stderr: "warning: tenant=nobody of api: " + full},
		{args: "reset --domain api tenant=nobody --force --json", out: `{"limits":["month"],"warnings":["` + full, stderr: "warning: "},
		{args: "reset --domain api tennant=nobody", code: cmdline.ExitError, stderr: "refused  tennant=nobody of api: " + noLimit, ends: forced},
		{args: "reset --domain api tennant=nobody --force", out: "unchanged  tennant=nobody of api: no limit to reset\n", stderr: "warning: tennant=nobody of api: " + noLimit},
		{args: "reset --domain apu tenant=m", code: cmdline.ExitError, stderr: "refused  tenant=m of apu: domain: found \"apu\"; there is none of this name (api?)\n"},
		{args: "assign --from - --dry-run", input: "domain,entries,blocked\napi,tennant=x,true\n", out: "1 row: would be 1 created, 0 replaced, 0 unchanged, 1 with a warning\n", stderr: "warning: standard input:2: tennant=x of api: no rule is for"},
		{args: "explain --domain api tenant=m", out: "It would be denied: tenant=m is blocked.\n"},
	} {
		out, stderr, code := clitest.Run(t, c.input, append([]string{"ratelimitd"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.HasPrefix(out, c.out) || !strings.HasPrefix(stderr, c.stderr) || !strings.HasSuffix(stderr, c.ends) || c.stderr+c.ends == "" && stderr != "" {
			t.Errorf("%s exits with %d: %s\n%s\nwant %d, %s\n%s ... %s", c.args, code, stderr, out, c.code, c.stderr, c.out, c.ends)
		}
	}
	// Rows of a file are made all the same, so that one customer keeps no others back. Of
	// many only the first are named.
	rows := "domain,entries,blocked\n"
	for i := range 70 {
		rows += fmt.Sprintf("api,tennant=%d,true\n", i)
	}
	out, stderr, code := clitest.Run(t, rows, "ratelimitd", "assign", "--from", "-")
	if code != 0 || out != "70 rows: 70 created, 0 replaced, 0 unchanged, 70 with a warning\n" || strings.Count(stderr, "\n") != 6 ||
		!strings.Contains(stderr, "standard input:6: tennant=4 of api: no rule is for") || !strings.HasSuffix(stderr, "only counted\n") {
		t.Errorf("an import exits with %d: %s%s", code, out, stderr)
	}
}
