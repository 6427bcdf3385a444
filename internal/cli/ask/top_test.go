package ask_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Each command of the page does what it says, on the limits of the page about steering.
func TestTopAsDocumented(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	tokens := filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: desk, role: support, sha256: %x}\n", sum))
	clitest.StartDaemon(t, clitest.Blocks(t, "../../../docs/steer.md", "yaml")[0], tokens)
	t.Setenv(dial.TokenVariable, "secret")
	for subject, times := range map[string]int{"tenant=mallory": 3, "tenant=acme": 2} {
		if _, stderr, code := clitest.Run(t, "", "ratelimitd", "take", "--domain", "api", "--cost", "1000000", "--count", fmt.Sprint(times), subject); code != cmdline.ExitDenied {
			t.Fatalf("take exits with %d: %s", code, stderr)
		}
	}
	if _, stderr, code := clitest.Run(t, "", "ratelimitd", "take", "--domain", "api", "--cost", "2", "tenant=acme"); code != 0 {
		t.Fatalf("take exits with %d: %s", code, stderr)
	}
	const head = "COUNT  ERROR  SHARE   DOMAIN  RULE                SUBJECT\n"
	denied := "COUNT  ERROR  SHARE  DOMAIN  RULE                SUBJECT\n" +
		"3      0      60.0%  api     tenant (plan free)  tenant=mallory\n" +
		"2      0      40.0%  api     tenant (plan free)  tenant=acme\n" +
		"no other subject had more than 0\n"
	want := []string{
		denied, denied, denied,
		head + "2      0      100.0%  api     tenant (plan free)  tenant=acme\nno other subject had more than 0\n",
		`"total":5,"others_at_most":0,`,
	}
	for _, line := range strings.Split(strings.TrimSpace(clitest.Blocks(t, "../../../docs/top.md", "sh")[0]), "\n") {
		out, stderr, code := clitest.Run(t, "", clitest.Words(line)...)
		if code != 0 || stderr != "" || !strings.Contains(out, want[0]) {
			t.Errorf("%s\nexits with %d: %s\n%s\nwant\n%s", line, code, stderr, out, want[0])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("no command prints %q", want)
	}
	for args, said := range map[string]string{
		"--window 2m":       `flag --window: found "2m"; allowed: 1m, 15m, 1h`,
		"apo":               "(api?)",
		"api tenent":        "none of this path",
		"api a b":           "found 3 arguments; allowed: at most 2",
		"api --limit 1000 ": "allowed: a whole number from 1 to 500",
	} {
		if _, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "top"}, strings.Fields(args)...)...); code != cmdline.ExitError || !strings.Contains(stderr, said) {
			t.Errorf("top %s exits with %d: %s", args, code, stderr)
		}
	}
}

func TestTopSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := clitest.StartFakeAdmin(t)
	f.Pending = []*adminv1.Daemon{{Id: "1", Address: "web-1:8081"}, {Id: "2\x1b[2J"}}
	out, stderr, code := f.Run(t, "top")
	if code != cmdline.ExitPending || stderr != "what these counted is not in it, since they did not answer: web-1:8081, 2\\u{1b}[2J\n" {
		t.Errorf("exits with %d: %s", code, stderr)
	}
	if want := "denied in the last 1m (0s of it so far), by 2 daemons: 50 in all\nCOUNT  ERROR  SHARE  DOMAIN  RULE  SUBJECT\n" +
		`5      1      10.0%  api     user  'user=\u{1b}[2Ja\,b'...` + "\nno other subject had more than 4\n"; out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// nthWrite ends a context once something was written so often.
type nthWrite struct {
	strings.Builder
	left int
	end  func()
}

func (w *nthWrite) Write(p []byte) (int, error) {
	if w.left--; w.left == 0 {
		defer w.end()
	}
	return w.Builder.Write(p)
}

func TestTopWatchesUntilItIsEnded(t *testing.T) {
	t.Parallel()
	f := clitest.StartFakeAdmin(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &nthWrite{left: 1, end: cancel}
	var stderr strings.Builder
	if code := cli.Run(ctx, "", []string{"ratelimitd", "top", "--watch", "--admin-address", f.Address}, strings.NewReader(""), out, &stderr); code != 0 {
		t.Errorf("it exits with %d: %s", code, stderr.String())
	}
	if n := strings.Count(out.String(), "denied in the last 1m"); n != 1 || strings.Contains(out.String(), "\x1b") && !strings.Contains(out.String(), `\x1b`) {
		t.Errorf("it shows %q", out.String())
	}
}

// Watched as JSON, top prints one line for each answer, and nothing between.
func TestTopWatchesInLinesOfJSON(t *testing.T) {
	t.Parallel()
	f := clitest.StartFakeAdmin(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &nthWrite{left: 2, end: cancel}
	var stderr strings.Builder
	if code := cli.Run(ctx, "", []string{"ratelimitd", "top", "--watch", "--json", "--admin-address", f.Address}, strings.NewReader(""), out, &stderr); code != 0 {
		t.Errorf("it exits with %d: %s", code, stderr.String())
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 || lines[0] != lines[1] || !strings.HasPrefix(lines[0], "{") {
		t.Errorf("it shows %q", lines)
	}
}

// What top shows of a subject is what explain takes, whatever a caller sent.
func TestTopSubjectsArePasted(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	clitest.StartDaemon(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 0, period: 1s}}]\n",
		filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: desk, role: support, sha256: %x}\n", sha256.Sum256([]byte("secret")))))
	t.Setenv(dial.TokenVariable, "secret")
	sent := map[string]bool{}
	for _, value := range []string{"a", "a,b", `it's "x"`, "$(id);\x1b[2J\u202e", `\`} {
		subject := assigntext.FormatEntries([]*ratelimitv1.Entry{{Key: "user", Value: value}})
		sent[subject] = true
		if _, stderr, code := clitest.Run(t, "", "ratelimitd", "take", "--domain", "d", subject); code != cmdline.ExitDenied {
			t.Fatalf("take of %q exits with %d: %s", subject, code, stderr)
		}
	}
	out, stderr, code := clitest.Run(t, "", "ratelimitd", "top")
	if code != 0 {
		t.Fatalf("top exits with %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	column := strings.Index(lines[1], "SUBJECT")
	for _, line := range lines[2 : len(lines)-1] {
		pasted, err := exec.CommandContext(t.Context(), bash, "-c", "printf %s "+line[column:]).Output()
		if err != nil || !sent[string(pasted)] {
			t.Errorf("bash reads %s as %q: %v", line[column:], pasted, err)
		}
		delete(sent, string(pasted))
		if out, stderr, code := clitest.Run(t, "", "ratelimitd", "explain", "--domain", "d", string(pasted)); code != 0 || !strings.Contains(out, "─ "+line[column:]+": denied") {
			t.Errorf("explain %q exits with %d: %s\n%s", pasted, code, stderr, out)
		}
	}
	if len(sent) > 0 {
		t.Errorf("top does not show %v:\n%s", sent, out)
	}
}
