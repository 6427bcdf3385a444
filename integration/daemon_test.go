package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// binary is the built ratelimitd.
var binary string

func TestMain(m *testing.M) {
	if attackIfTold() || holdIfTold() || leaseIfTold() {
		return
	}
	os.Exit(builttest.Run(func(built string) int {
		binary = built
		return redistest.Run(m)
	}))
}

// plainGo is an environment in which go build -trimpath compiles packages as make
// build, make lint and the Dockerfile do, so that all of these share what is compiled.
func plainGo() []string { return append(os.Environ(), "CGO_ENABLED=0") }

// command runs the binary with args and returns what it printed and its code.
func command(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return commandEnv(t, nil, args...)
}

func commandEnv(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runCommand(t, env, "", args)
}

// commandInput is command with a text on standard input.
func commandInput(t testing.TB, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runCommand(t, nil, input, args)
}

func runCommand(t testing.TB, env []string, input string, args []string) (stdout, stderr string, code int) {
	t.Helper()
	// An import of 100,000 rows takes more than a minute on a busy machine.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(cleanEnv(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// cleanEnv is the environment without the daemon's own variables.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RATELIMITD_") {
			env = append(env, v)
		}
	}
	return env
}

// daemon is a running ratelimitd.
type daemon struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited

	mu  sync.Mutex
	log []string

	grpc, http, admin, metrics string

	client rlsv3.RateLimitServiceClient
}

// start starts a daemon on free ports and waits until it serves.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := launch(t, nil, args...)
	d.waitServing()
	return d
}

// waitServing waits until the daemon serves, and learns its addresses.
func (d *daemon) waitServing() {
	d.t.Helper()
	line := d.waitForLog("msg=serving")
	d.grpc, d.http, d.admin, d.metrics = field(line, "grpc"), field(line, "http"), field(line, "admin"), field(line, "metrics")
	d.dial(d.grpc)
}

// launch starts a daemon without waiting for it.
func launch(t testing.TB, env []string, args ...string) *daemon {
	t.Helper()
	all := []string{"serve", "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"}
	cmd := exec.Command(binary, append(all, args...)...)
	// Not those of a daemon that runs on this machine.
	cmd.Env = append(append(cleanEnv(), "RATELIMITD_ASSIGNMENTS_PATH="), env...)
	return launchCommand(t, cmd)
}

// launchCommand starts a daemon by a command.
func launchCommand(t testing.TB, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{t: t, cmd: cmd, done: make(chan struct{})}
	out, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout = d.cmd.Stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			d.mu.Lock()
			d.log = append(d.log, lines.Text())
			d.mu.Unlock()
		}
		_ = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.logText())
		}
	})
	return d
}

func (d *daemon) dial(address string) {
	d.t.Helper()
	d.dialAs(address, insecure.NewCredentials())
}

func (d *daemon) dialAs(address string, security credentials.TransportCredentials) {
	d.t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(security))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	d.client = rlsv3.NewRateLimitServiceClient(conn)
}

func (d *daemon) logText() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.log, "\n")
}

// waitForLog waits for the first line with a text, and returns it.
func (d *daemon) waitForLog(text string) string {
	d.t.Helper()
	found := ""
	asynctest.Eventually(d.t, "the daemon logs "+text, func() bool {
		for line := range strings.SplitSeq(d.logText(), "\n") {
			if strings.Contains(line, text) {
				found = line
				return true
			}
		}
		select {
		case <-d.done:
			d.t.Fatalf("the daemon has ended before it logged %q:\n%s", text, d.logText())
		default:
		}
		return false
	})
	return found
}

// field returns the value of key=value in a line of the text log.
func field(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return strings.Trim(value, `"`)
}

func (d *daemon) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// hang stops the daemon's threads until goOn is called. The signal takes
// effect when a thread next runs; on a busy machine that is not at once.
func (d *daemon) hang() (goOn func()) {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	threads := fmt.Sprintf("/proc/%d/task/*/stat", d.cmd.Process.Pid)
	asynctest.Eventually(d.t, "all threads of the daemon have stopped", func() bool {
		files, err := filepath.Glob(threads)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, file := range files { // there are none without /proc
			stat, _ := os.ReadFile(file)
			if !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return true
	})
	return func() { d.signal(syscall.SIGCONT) }
}

// stop sends a signal and returns the exit code.
func (d *daemon) stop(s os.Signal) int {
	d.t.Helper()
	d.signal(s)
	return d.wait()
}

// wait waits for the daemon's end and returns its exit code.
func (d *daemon) wait() int {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(time.Minute):
		d.t.Fatal("the daemon does not end")
	}
	return d.cmd.ProcessState.ExitCode()
}

// ask asks for one descriptor and fails the test on an error.
func (d *daemon) ask(domain string, hits uint32, entries ...string) *rlsv3.RateLimitResponse {
	d.t.Helper()
	r, err := d.tryAsk(domain, hits, entries...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *daemon) tryAsk(domain string, hits uint32, entries ...string) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return d.client.ShouldRateLimit(ctx, request(domain, hits, entries...))
}

func request(domain string, hits uint32, entries ...string) *rlsv3.RateLimitRequest {
	descriptor := &ratelimitv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		descriptor.Entries = append(descriptor.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor}}
}

func ok(r *rlsv3.RateLimitResponse) bool {
	return r.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// degraded reports whether the store did not decide an answer.
func degraded(r *rlsv3.RateLimitResponse) bool {
	return r.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue()
}

// write writes a file into dir by a rename, as careful editors do.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// get returns the status and body of a page.
func get(t testing.TB, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func decodeJSON(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return m
}
