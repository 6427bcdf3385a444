package steer_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// On a terminal all that a command says is wrapped by words, on standard error too.
func TestMessagesAreWrappedOnATerminal(t *testing.T) {
	t.Setenv("COLUMNS", "")
	t.Setenv(dial.TokenVariable, "secret")
	sum := sha256.Sum256([]byte("secret"))
	clitest.StartDaemon(t, `
domain: api
descriptors:
- {key: tenant, rate_limit: {requests: 5, period: 30d}}
`, filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sum)))
	for args, want := range map[string]string{
		"reset --domain api tennant=nobody":         "refused  tennant=nobody of api: no rule is for the descriptor",
		"reset --domain api tennant=nobody --force": "warning: tennant=nobody of api: no rule is for the descriptor",
		"block --domain api tennant=nobody --force": "warning: tennant=nobody of api: no rule is for descriptors",
		"block --domain api tennant=nobody":         "refused    tennant=nobody of api: no rule is for descriptors",
		"block --until 2027-02-30":                  `ratelimitd: flag --until: found "2027-02-30"; allowed:`,
		"block --domain api tenant":                 `ratelimitd: found "tenant"; allowed:`,
	} {
		p := clitest.OpenTerminal(t)
		cli.Run(t.Context(), "", append([]string{"ratelimitd"}, strings.Fields(args)...), p.Program, p.Program, p.Program)
		fmt.Fprintln(p.Program, "the end")
		asynctest.Eventually(t, "all is shown", func() bool { return strings.HasSuffix(p.Shown.String(), "the end\r\n") })
		text := p.Shown.String()
		if words := strings.Join(strings.Fields(text), " "); !strings.Contains(words, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%s says\n%s\nwant %s", args, text, want)
		}
		for _, line := range strings.Split(text, "\r\n") {
			if utf8.RuneCountInString(line) > 80 && len(strings.Fields(line)) > 1 { // a path may be longer
				t.Errorf("%s: a line is wider than the terminal: %s", args, line)
			}
		}
	}
}
