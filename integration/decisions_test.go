package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// logging starts a daemon of three requests a user that logs its decisions.
func logging(t *testing.T, args ...string) (d *daemon, path string) {
	t.Helper()
	limits := t.TempDir()
	write(t, limits, "limits.yaml", yearlyOf(3))
	path = filepath.Join(t.TempDir(), "decisions.jsonl")
	return start(t, append([]string{"--limits-path", limits, "--decisions-path", path}, args...)...), path
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// What was answered before SIGTERM is in the file when the daemon has ended, and each
// page of the documentation about it works.
func TestDecisionsAreLogged(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var args []string
			if store == "redis" {
				args = redisFlags("single", redistest.Single(t))
			}
			d, path := logging(t, args...)
			for range 5 {
				d.ask("api", 1, "user=alice")
			}
			_, _ = d.tryAsk("", 1, "user=alice")
			if code := d.stop(syscall.SIGTERM); code != 0 {
				t.Fatalf("it exits with %d", code)
			}
			got := lines(t, path)
			if len(got) != 7 || !strings.HasPrefix(got[0], `{"v":1,"kind":"limits"`) || strings.Count(strings.Join(got, "\n"), `"result":"denied","descriptors"`) != 2 {
				t.Fatalf("it logs\n%s", strings.Join(got, "\n"))
			}
			if store == "redis" && !strings.Contains(got[5], `"remembered":true`) {
				t.Errorf("a denial from memory: %s", got[5])
			}
			documentedQuestions(t, filepath.Dir(path))
		})
	}
}

// documentedQuestions asks the log of a folder, and the line on the page, what the page
// asks.
func documentedQuestions(t *testing.T, dir string) {
	t.Helper()
	const page = "docs/decisions.md"
	write(t, dir, "hash.key", "0123456789abcdef")
	write(t, dir, "decisions-2026-11-23T01-00-00.000.jsonl.gz", gzipped(t, blockFrom(t, page, "json", `{"v":1`)))
	answers := map[string]string{
		"acme": "2026-11-23T00:00:00.000001Z tenant / path=/x, second: 0 left, again in 0.12 s", "sort -rn": "2 api fixed_window user=alice",
		"tail -F": `"result":"denied"`, "kind": "# limits.yaml\ndomain: api", "openssl": "h:69667e0df153a0f2",
	}
	for _, script := range blocks(t, page, "sh") {
		var out, failed bytes.Buffer
		cmd := exec.Command("sh", "-c", strings.Replace(script, "tail -F", "cat", 1))
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &failed
		if err := cmd.Run(); err != nil || failed.Len() > 0 {
			t.Errorf("%s: %v: %s%s", script, err, &out, &failed)
		}
		isKnown := false
		for in, want := range answers {
			if strings.Contains(script, in) {
				isKnown = true
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: %s, want %q", script, &out, want)
				}
			}
		}
		if !isKnown {
			t.Errorf("nothing says what is printed by %s", script)
		}
	}
}

// logrotate moves the file, and tells the daemon by SIGHUP.
func TestTheLogGoesOnAfterItsFileWasMoved(t *testing.T) {
	t.Parallel()
	d, path := logging(t)
	d.ask("api", 1, "user=alice")
	asynctest.Eventually(t, "two lines", func() bool { return len(lines(t, path)) == 2 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	d.signal(syscall.SIGHUP)
	asynctest.Eventually(t, "a new file", func() bool {
		d.ask("api", 1, "user=bob")
		text, err := os.ReadFile(path)
		return err == nil && strings.HasPrefix(string(text), `{"v":1,"kind":"limits"`) && strings.Contains(string(text), `["user","bob"]`)
	})
}

func TestAPathThatIsNoFileEndsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, stderr, code := command(t, "serve", "--limits-path", "../deploy/limits", "--decisions-path", dir)
	if want := "decisions.path: found " + dir + ", which is a folder"; code == 0 || !strings.Contains(stderr, want) {
		t.Errorf("it exits with %d: %s", code, stderr)
	}
}

// The collector gets the lines with the trace of the request, and hashed values.
func TestDecisionsAreSentToACollector(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	dir := t.TempDir()
	write(t, dir, "limits.yaml", yearlyOf(3))
	key := write(t, t.TempDir(), "hash.key", "0123456789abcdef\n")
	d := start(t, "--limits-path", dir, "--decisions-otlp-endpoint", c.HTTP, "--tracing-enabled", "--tracing-endpoint", c.HTTP, "--decisions-values", "hash", "--decisions-hash-key-file", key)
	if _, err := d.client.ShouldRateLimit(withParent(t, aSampled), request("api", 1, "user=alice")); err != nil {
		t.Fatal(err)
	}
	d.stop(syscall.SIGTERM)
	logs := c.Logs()
	if len(logs) != 1 || logs[0].TraceHex() != aSampled[3:35] || !strings.Contains(logs[0].Text(), `["user","h:69667e0df153a0f2"]`) ||
		!strings.Contains(logs[0].Text(), `"trace_id":"`+aSampled[3:35]+`"`) || logs[0].Resource["service.name"] != "ratelimitd" {
		t.Errorf("%+v", logs)
	}
}
