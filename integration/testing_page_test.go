package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const testingPage = "docs/testing.md"

// The Go test of the page about testing passes, and fails with another limit.
func TestDocumentedGoTestTestsLimits(t *testing.T) {
	t.Parallel()
	limits := blockFrom(t, testingPage, "yaml", "domain:")
	for _, c := range []struct {
		limits string
		passes bool
	}{
		{limits, true},
		{with(t, limits, "requests: 3", "requests: 4"), false},
	} {
		file := goExample(t, blocks(t, testingPage, "go")[0])
		dir := filepath.Dir(file)
		test := filepath.Join(dir, "shop_test.go")
		if err := os.Rename(file, test); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "limits"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "limits"), "shop.yaml", c.limits)
		cmd := exec.Command("go", "test", "-trimpath", "-count=1", test)
		cmd.Env = append(plainGo(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "RATELIMITD_ASSIGNMENTS_PATH=")
		out, err := cmd.CombinedOutput()
		if passed := err == nil; passed != c.passes || !passed && !strings.Contains(string(out), "order ") {
			t.Errorf("with\n%s\nit ends with %v:\n%s", c.limits, err, out)
		}
	}
}

// Each command of the page about testing prints what the comments below it say.
func TestDocumentedShellTestsLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "limits"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "limits"), "shop.yaml", blockFrom(t, testingPage, "yaml", "domain:"))
	script := blocks(t, testingPage, "sh")[0]
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "RATELIMITD_GRPC_ADDRESS="+freeAddress(t),
		"RATELIMITD_ADMIN_ADDRESS="+freeAddress(t), "RATELIMITD_HTTP_ADDRESS=", "RATELIMITD_ASSIGNMENTS_PATH=", "RATELIMITD_DRAIN_DELAY=0s")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("the commands end with %v", err)
	}
	rest := string(out)
	for _, m := range regexp.MustCompile(`(?m)^# (.*)$`).FindAllStringSubmatch(script, -1) {
		_, after, found := strings.Cut(rest, m[1])
		if !found {
			t.Errorf("%q does not come next in\n%s", m[1], rest)
		}
		rest = after
	}
}
