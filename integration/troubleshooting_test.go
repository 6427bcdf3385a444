package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const troubleshooting = "docs/troubleshooting.md"

// Each command of the page about symptoms prints what the page shows, at a daemon of the
// limits of make run whose Redis was away.
func TestTroubleshootingAsDocumented(t *testing.T) {
	t.Parallel()
	needProxy(t, "curl")
	redis, log := redistest.Start(t), filepath.Join(t.TempDir(), "decisions.jsonl")
	d := start(t, steeredBy(t, "../deploy/limits", "--store", "redis", "--redis-addresses", redis.Addr(), "--redis-timeout", "10s",
		"--top-subjects", "all", "--decisions-path", log)...)
	redis.Kill()
	d.ask("api", 1, "user=dora")
	redis.Restart()
	asynctest.Eventually(t, "Redis decides again", func() bool {
		d.ask("api", 1, "user=erin")
		out, _, code := d.steer("", "explain", "--domain", "api", "user=erin")
		return code == 0 && !strings.Contains(out, "does not answer")
	})
	if out, stderr, code := d.steer("", "block", "--domain", "api", "tenant=mallory", "--for", "1h"); code != 0 && code != 4 {
		t.Fatalf("block exits with %d: %s%s", code, out, stderr)
	}
	host, port, _ := strings.Cut(redis.Addr(), ":")
	here := strings.NewReplacer("decisions.jsonl", log, "127.0.0.1:6070", d.admin, "127.0.0.1:8080", d.http, "redis-cli ", "redis-cli -h "+host+" -p "+port+" ",
		"sleep 10", "ratelimitd take --domain api --address "+d.grpc+" user=$$ >/dev/null")
	run := func(script string) (string, error) {
		cmd := exec.Command("sh", "-c", here.Replace(script))
		cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "RATELIMITD_TOKEN="+operatorToken,
			"RATELIMITD_ADMIN_ADDRESS="+d.admin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last command:\n%s", last)
		}
	})
	for _, shown := range shownOutputs(t) {
		if strings.Contains(shown.script, "redis-cli") {
			needProxy(t, "redis-cli")
		}
		asynctest.Eventually(t, shown.script+"prints "+shown.text, func() bool {
			for range 11 {
				d.ask("api", 1, "user=alice")
			}
			d.ask("api", 1, "usr=bob")
			out, err := run(shown.script)
			last = fmt.Sprintf("%s: %v\n%s", shown.script, err, out)
			return err == nil && printsAll(out, shown.text)
		})
	}
	inline := regexp.MustCompile("`((?:ratelimitd|redis-cli) [^`]+)`").FindAllStringSubmatch(readPage(t, troubleshooting), -1)
	if len(inline) < 3 {
		t.Errorf("the text names %d commands", len(inline))
	}
	for _, m := range inline {
		if out, err := run(m[1]); err != nil {
			t.Errorf("%s: %v\n%s", m[1], err, out)
		}
	}
}

// steeredBy is steered for a folder of limits files.
func steeredBy(t testing.TB, limits string, flags ...string) []string {
	t.Helper()
	return append(steered(t, "domain: none\n", flags...), "--limits-path", limits)
}

// shownOutput is a command of a page, and the lines that it prints.
type shownOutput struct{ script, text string }

// shownOutputs returns the commands of the page, each of which is followed by what it
// prints.
func shownOutputs(t testing.TB) (all []shownOutput) {
	t.Helper()
	page := readPage(t, troubleshooting)
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(page, -1) {
		all = append(all, shownOutput{m[1], m[2]})
	}
	if n := strings.Count(page, "```sh\n"); n == 0 || len(all) != n {
		t.Fatalf("the page has %d commands, and says what %d print", n, len(all))
	}
	return all
}

// printsAll reports whether each line of a text was printed. "..." stands for any part of
// a line.
func printsAll(printed, text string) bool {
	for line := range strings.Lines(text) {
		var parts []string
		for _, part := range strings.Split(strings.TrimSuffix(line, "\n"), "...") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		if !regexp.MustCompile("(?m)" + strings.Join(parts, ".*")).MatchString(printed) {
			return false
		}
	}
	return true
}

// The texts that the page quotes for other causes are those of such daemons.
func TestTroubleshootingQuotesWhatIsPrinted(t *testing.T) {
	t.Parallel()
	page := readPage(t, troubleshooting)
	for _, c := range []struct {
		name, flags, args, says string
	}{
		{"shadow", "--limits-shadow-mode", "explain --domain api --cost 20 user=a", "would be denied, but is in shadow mode"},
		{"unmatched", "--limits-unmatched deny", "explain --domain api usr=a", "no rule is for usr=a, and its domain denies what has none"},
		{"away", "--store redis --redis-addresses 127.0.0.1:1 --failure-mode allow", "explain --domain api user=a", "The store does not answer"},
		{"in flight", "", "explain --domain api worker=pool,job=3", "once a slot is released"},
		{"memory", "", "daemons", "self"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(page, "`"+c.says+"`") {
				t.Errorf("%s does not quote %q", troubleshooting, c.says)
			}
			d := start(t, steeredBy(t, "../deploy/limits", strings.Fields(c.flags)...)...)
			for _, job := range []string{"job=1", "job=2"} {
				d.ask("api", 1, "worker=pool", job)
			}
			out, stderr, code := d.steer("", strings.Fields(c.args)...)
			if code != 0 || !strings.Contains(out, c.says) {
				t.Errorf("%s exits with %d: %s\n%s", c.args, code, stderr, out)
			}
		})
	}
}
