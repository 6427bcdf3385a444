package filecmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
)

// A token that the command makes opens the daemon's admin API, from the start and, once
// the daemon has read the file again, when it was made later.
func TestTokenCommandMakesTokensThatTheDaemonKnows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	t.Setenv("RATELIMITD_ADMIN_TOKENS_FILE", path)
	token, notes, code := clitest.Run(t, "", "ratelimitd", "token", "ops", "--role", "operator")
	if code != 0 || !regexp.MustCompile(`^[A-Za-z0-9_-]{43}\n$`).MatchString(token) || !strings.Contains(notes, path+" is new and has ops, operator.") {
		t.Fatalf("exits with %d: %q, %s", code, token, notes)
	}
	t.Setenv("RATELIMITD_ADMIN_TOKENS_FILE", "")
	clitest.StartDaemon(t, "domain: api\ndescriptors: [{key: tenant, rate_limit: {requests: 5, period: 1s}}]\n", path)
	t.Setenv(dial.TokenVariable, strings.TrimSpace(token))
	if out, stderr, code := clitest.Run(t, "", "ratelimitd", "reset", "--domain", "api", "tenant=a", "--force"); code != 0 {
		t.Errorf("reset exits with %d: %s%s", code, out, stderr)
	}
}

func TestTokenCommandRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("RATELIMITD_ADMIN_TOKENS_FILE", "")
	if err := os.WriteFile("bad.yaml", []byte("- {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, code := clitest.Run(t, "", "ratelimitd", "token", "a", "--role", "viewer", "--tokens-file", "good.yaml"); code != 0 {
		t.Fatal(code)
	}
	before, err := os.ReadFile("good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"a":                 "found no --role; allowed: viewer, support, operator",
		"":                  "found 0 arguments; allowed: one name",
		"a b --role viewer": "found 2 arguments; allowed: one name",
		"a --role oprator":  `flag --role: found "oprator" (operator?); allowed: viewer, support, operator`,
		"a --role viewer":   "found no tokens file; allowed: --tokens-file FILE, or admin.tokens_file in the settings",
		"a --add --replace": "found --add beside --replace",
		"a --role viewer --tokens-file good.yaml":        "allowed: another name, --add for one more, or --replace",
		"b --replace --tokens-file good.yaml":            `found no entry of "b"`,
		"a --role viewer --tokens-file bad.yaml":         "the tokens file has errors, and stays as it is:\nbad.yaml:1:3: [0]: found no role",
		"a --role viewer --tokens-file none/tokens.yaml": "none/tokens.yaml.new: no such file or directory",
		"a --role viewer --tokens-file .":                "is no file",
	} {
		out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "token"}, strings.Fields(args)...)...)
		if code != cmdline.ExitError || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("token %s exits with %d: %q %s\nwant %s", args, code, out, stderr, want)
		}
	}
	if after, err := os.ReadFile("good.yaml"); err != nil || string(after) != string(before) {
		t.Errorf("%v, the file has\n%s", err, after)
	}
	files, _ := filepath.Glob("*.new")
	if len(files) > 0 {
		t.Errorf("left are %v", files)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("closed") }

// With --add the former token holds too; with --replace it is gone.
func TestTokenCommandRotates(t *testing.T) {
	t.Chdir(t.TempDir())
	made := func(args ...string) (text string) {
		t.Helper()
		if _, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "token", "--tokens-file", "tokens.yaml"}, args...)...); code != 0 {
			t.Fatalf("%v exits with %d: %s", args, code, stderr)
		}
		b, err := os.ReadFile("tokens.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := made("ops", "--role", "support")
	replaced := made("ops", "--replace")
	if replaced == first || strings.Count(replaced, "sha256") != 1 || !strings.Contains(replaced, "role: support") {
		t.Errorf("first\n%safter --replace\n%s", first, replaced)
	}
	if added := made("ops", "--add"); !strings.HasPrefix(added, replaced) || strings.Count(added, "role: support") != 2 {
		t.Errorf("after --add\n%s", added)
	}
	var stderr strings.Builder
	code := cli.Run(t.Context(), "", []string{"ratelimitd", "token", "pipe", "--role", "viewer", "--tokens-file", "tokens.yaml"}, strings.NewReader(""), closedPipe{}, &stderr)
	if code != cmdline.ExitError || !strings.Contains(stderr.String(), "it is lost") || !strings.Contains(stderr.String(), "--replace") {
		t.Errorf("without somebody who reads it, it exits with %d: %s", code, stderr.String())
	}
}
