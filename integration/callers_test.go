package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The examples that ask a running daemon do what they say.

func TestExampleCurlAsks(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", "../deploy/limits")
	out, err := exec.Command("../examples/curl/take.sh", d.http).CombinedOutput()
	want := regexp.MustCompile(`^take: 200\ntake: 429\n"retryAfter": *"1[0-2](\.\d+)?s"\ngive-back: 200\ntake: 200\n$`)
	if err != nil || !want.Match(out) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestExamplePythonAsks(t *testing.T) {
	t.Parallel()
	stubs := pythonStubs(t)
	d := start(t, "--limits-path", "../deploy/limits")
	for _, c := range []struct {
		script string
		args   []string
		want   string
	}{
		{"take.py", []string{"user=python", "7"}, `allowed 3 left\n`},
		{"should_rate_limit.py", []string{"user=python"}, `OK [2-4] left\n`},
		{"take.py", []string{"user=python"}, `allowed [1-4] left\n`},
		{"take.py", []string{"user=python", "8"}, `denied [1-4] left\ncome back in 0:00:[234]\d\.?\d*\n`},
		{"take.py", []string{"user=python", "11"}, `denied [1-4] left\n`},
	} {
		cmd := exec.Command("/usr/bin/python3", append([]string{filepath.Join("../examples/python", c.script), d.grpc}, c.args...)...)
		cmd.Env = append(cleanEnv(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile("^"+c.want+"$").Match(out) {
			t.Errorf("%s %s: %v: %s, want %s", c.script, strings.Join(c.args, " "), err, out, c.want)
		}
	}
}

// Every example of the page about callers does what it says.
func TestDocumentedCallersDoWhatTheySay(t *testing.T) {
	t.Parallel()
	const page = "docs/callers.md"
	stubs := pythonStubs(t)
	d := start(t, "--limits-path", "../deploy/limits")
	run := func(t *testing.T, i int, language, want string, cmd *exec.Cmd) {
		t.Helper()
		cmd.Env = append(cleanEnv(), "PYTHONPATH="+stubs)
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile("^"+want+"$").Match(out) {
			t.Errorf("%s: block %d of %s: %v: %s\nwant %s", page, i, language, err, out, want)
		}
	}
	for _, c := range []struct {
		language string
		want     []string
		command  func(text string) *exec.Cmd
	}{
		{"python", []string{
			`allowed\n`,
			`allowed, 7 left\n`,
			`7 left\n`,
			`allowed\n`,
			`allowed\nRELEASED_SLOT\n`,
			`(?:[012] allowed\n){3}`,
			`allowed\ndenied\ndomain is empty; .*\n`,
		}, func(text string) *exec.Cmd {
			return exec.Command("/usr/bin/python3", write(t, t.TempDir(), "example.py", text), d.grpc)
		}},
		{"sh", []string{`{.*"allowed": *true.*}\n200\n{"allowed": *false.*"deniedBy": *0.*}\n429\n200\n`}, func(text string) *exec.Cmd {
			return exec.Command("sh", "-ec", strings.ReplaceAll(text, "localhost:8080", d.http))
		}},
		{"go", []string{`true <nil>\ntrue [67] left\n<nil>\nworking\n<nil>\n`, `(?:200 ){10}429 `}, func(text string) *exec.Cmd {
			cmd := exec.Command("go", "run", "-trimpath", goExample(t, text), d.grpc)
			cmd.Env = plainGo()
			return cmd
		}},
	} {
		t.Run(c.language, func(t *testing.T) {
			texts := blocks(t, page, c.language)
			if len(texts) != len(c.want) {
				t.Fatalf("%d blocks of %s, want %d", len(texts), c.language, len(c.want))
			}
			for i, text := range texts {
				run(t, i, c.language, c.want[i], c.command(text))
			}
		})
	}
}

// goExample writes a program into the module's tree, which has its
// dependencies, in a folder that go list passes over: it is gone at any moment.
func goExample(t *testing.T, text string) string {
	t.Helper()
	if err := os.MkdirAll("../build", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("../build", "_callers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return write(t, dir, "main.go", text)
}

// pythonStubs generates the code that Python's examples call, in a folder of
// the test.
func pythonStubs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("make", "-C", "..", "python-stubs", "STUBS="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}
