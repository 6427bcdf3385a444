package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
)

// binary is the daemon.
var binary string

func TestMain(m *testing.M) {
	os.Exit(builttest.Run(func(built string) int {
		binary = built
		return m.Run()
	}))
}

// writeLimits writes the limits of a pod into a folder and returns it.
func writeLimits(t *testing.T, o objects) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range o.limits(t) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLimitsAreGood(t *testing.T) {
	for name, o := range deployments(t) {
		if out, err := exec.Command(binary, "check", writeLimits(t, o)).CombinedOutput(); err != nil || !strings.Contains(string(out), "domain api") {
			t.Errorf("%s: check: %v\n%s", name, err, out)
		}
	}
}
