package integration

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The examples that ask a running daemon do what they say.

func TestExampleCurl(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", "../deploy/limits")
	out, err := exec.Command("../examples/curl/take.sh", d.http).CombinedOutput()
	want := regexp.MustCompile(`^take: 200\ntake: 429\n"retryAfter": *"1[0-2](\.\d+)?s"\ngive-back: 200\ntake: 200\n$`)
	if err != nil || !want.Match(out) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestExamplePython(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("make", "-C", "..", "python-stubs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stubs, err := filepath.Abs("../build/python")
	if err != nil {
		t.Fatal(err)
	}
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
