// Package daemontest runs the built daemon within tests of modules that are to
// need nothing of the daemon's own.
package daemontest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// binary is the built ratelimitd.
var binary string

// Run builds the daemon, of the tree two directories above, and runs the tests.
// It returns what the process is to exit with.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ratelimitd-contrib-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ratelimitd")
	build := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/ratelimitd")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		return 1
	}
	return m.Run()
}

// Start runs a daemon on the limits, in memory, until the test ends. It returns
// the address of its gRPC port.
func Start(t testing.TB, limits string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--limits-path", dir,
		"--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0")
	cmd.Env = cleanEnv()
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=serving") {
				serving <- field(lines.Text(), "grpc")
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	select {
	case address := <-serving:
		return address
	case <-ended:
		t.Fatal("the daemon has ended before it served")
		return ""
	}
}

// cleanEnv is the environment without the daemon's own variables.
func cleanEnv() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RATELIMITD_") {
			env = append(env, v)
		}
	}
	return env
}

// field returns a field of a line of the log.
func field(line, name string) string {
	_, value, _ := strings.Cut(line, " "+name+"=")
	value, _, _ = strings.Cut(value, " ")
	return strings.Trim(value, `"`)
}
