package guardtest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
)

// binary is the built ratelimitd.
var binary string

// Tests are the tests of a package that needs the daemon.
type Tests struct{ m *testing.M }

// WithDaemon returns the tests of a package that calls StartDaemon, Run or
// RunHTTP. TestMain of the package runs them:
//
//	func TestMain(m *testing.M) { os.Exit(guardtest.WithDaemon(m).Run()) }
func WithDaemon(m *testing.M) Tests { return Tests{m} }

// Run runs the tests with the daemon that builttest has, and returns the exit code of
// the process.
//
// The daemon is a process of its own, so that the module of a middleware does not
// depend on the daemon's packages.
func (t Tests) Run() int {
	return builttest.Run(func(built string) int {
		binary = built
		return t.m.Run()
	})
}

// StartDaemon runs a daemon on the limits, in memory, until the test ends. It
// returns the address of its gRPC port.
func StartDaemon(t testing.TB, limits string) string {
	t.Helper()
	if binary == "" {
		t.Fatal("there is no daemon: TestMain does not run the tests by guardtest.WithDaemon")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--limits-path", dir,
		// A daemon that already runs on the machine may use the default file.
		"--assignments-path", filepath.Join(dir, "assignments.db"),
		"--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0")
	cmd.Env = cleanEnv()
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
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
		t.Fatal("the daemon ended before it served")
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

// field returns the value of a field in a line of the log.
func field(line, name string) string {
	_, value, _ := strings.Cut(line, " "+name+"=")
	value, _, _ = strings.Cut(value, " ")
	return strings.Trim(value, `"`)
}

// Connect returns a client that is closed when the test ends. Its timeout is long,
// so that tests pass on a busy machine.
func Connect(t testing.TB, target string) *client.Client {
	t.Helper()
	c, err := client.New(target, client.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// UnusedAddress returns an address on which nothing listens.
func UnusedAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
