// Package builttest has packages test the daemon as it is built. make test builds it
// once, for all of them.
package builttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Run calls tests with the path of the daemon, and returns what they return or, if the
// daemon cannot be built, 1. The daemon is that of the variable TEST_DAEMON or, if that
// is not set, built from this checkout.
func Run(tests func(binary string) int) int {
	if binary := os.Getenv("TEST_DAEMON"); binary != "" {
		return tests(binary)
	}
	dir, err := os.MkdirTemp("", "ratelimitd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "ratelimitd")
	if err := Build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests(binary)
}

// Build writes the daemon to a path, compiled as make build compiles it.
func Build(path string) error {
	workspace, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return fmt.Errorf("find go.work: %w", err)
	}
	build := exec.Command("go", "build", "-C", filepath.Dir(strings.TrimSpace(string(workspace))), "-trimpath", "-o", path, "./cmd/ratelimitd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	return nil
}
