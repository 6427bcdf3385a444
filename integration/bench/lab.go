package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
)

// lab holds the servers of a run; each is started when a row first needs it.
type lab struct {
	dir, binary string
	progress    func(format string, args ...any)

	bare, bareTuned *process
	bareAt, tunedAt string
	callers         []*process // those that ask through the Go client
	callersAt       []string
	compared        []comparison
	profiles        string                // the folder for profiles of daemons, or none
	redis           map[int]*redisServers // by masters
	daemons         map[*server]*daemon
	collector       *httptest.Server // nil before a daemon sends spans
	// bareStates is what a state costs the single Redis without a script; 0 if
	// there is none.
	bareStates time.Duration
}

// daemon is a running ratelimitd.
type daemon struct {
	process     *process
	grpc, admin string
	redis       *redisServers // nil for the memory store
	filled      filled
	assign      *assigner // nil where nothing is assigned
}

// openLab builds the daemon and starts the bare servers. It binds the calling
// goroutine, the only one to use the lab, to its thread: the servers die with
// the thread that starts them.
func openLab(ctx context.Context, compared []comparison, progress func(string, ...any)) (_ *lab, err error) {
	runtime.LockOSThread()
	dir, err := os.MkdirTemp("", "ratelimitd-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{
		dir: dir, binary: filepath.Join(dir, "ratelimitd"),
		progress: progress, compared: compared,
		redis: make(map[int]*redisServers), daemons: make(map[*server]*daemon),
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if built := os.Getenv("TEST_DAEMON"); built != "" { // in tests
		l.binary = built
	} else {
		progress("building the daemon")
		if err := builttest.Build(l.binary); err != nil {
			return nil, err
		}
	}
	if l.bare, l.bareAt, err = startSelf(ctx, bareCommand); err != nil {
		return nil, err
	}
	if l.bareTuned, l.tunedAt, err = startSelf(ctx, bareTunedCommand); err != nil {
		return nil, err
	}
	return l, nil
}

// startSelf starts this program under a hidden command, and returns where it serves.
func startSelf(ctx context.Context, command string) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	p, line, err := startProcess(ctx, "serving", self, command)
	return p, field(line, "at"), err
}

// daemon returns the running server, which it starts if needed.
func (l *lab) daemon(ctx context.Context, s *server) (*daemon, error) {
	if d := l.daemons[s]; d != nil {
		return d, nil
	}
	l.progress("starting a daemon: %s", s.name)
	limits := filepath.Join(l.dir, fmt.Sprintf("limits-%d.yaml", len(l.daemons)))
	if err := os.WriteFile(limits, []byte(limitsFile("token_bucket", s.lease)), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--limits-path", limits,
		"--grpc-address", "127.0.0.1:0", "--http-address", "", "--admin-address", "127.0.0.1:0",
		// On a busy machine answers are late, and must be counted as late.
		"--redis-timeout", "1s",
	}
	binary := cmp.Or(s.binary, l.binary)
	if s.binary == "" || knows(ctx, binary, "--assignments-path") {
		// A daemon that already runs on the machine may use the default file.
		args = append(args, "--assignments-path", filepath.Join(l.dir, fmt.Sprintf("assignments-%d.db", len(l.daemons))))
	}
	d := &daemon{}
	if s.redis > 0 {
		servers, err := l.redisOf(ctx, s.redis)
		if err != nil {
			return nil, err
		}
		mode := "single"
		if s.redis > 1 {
			mode = "cluster"
		}
		d.redis = servers
		args = append(args,
			"--store", "redis", "--redis-mode", mode, "--redis-addresses", strings.Join(servers.addresses, ","),
			// Daemons that share a server do not share keys.
			"--redis-prefix", fmt.Sprintf("bench-%d", len(l.daemons)))
	}
	if s.traced {
		if l.collector == nil {
			l.collector = newCollector()
		}
		args = append(args, "--tracing-enabled", "--tracing-endpoint", l.collector.URL)
	}
	if s.recorded {
		args = append(args, "--decisions-path", filepath.Join(l.dir, "decisions.jsonl"), "--decisions-sample-allowed", "0")
	}
	if s.assigned > 0 {
		tokens := filepath.Join(l.dir, "tokens.yaml")
		if err := os.WriteFile(tokens, []byte(tokensFile), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--admin-tokens-file", tokens)
	}
	var line string
	var err error
	d.process, line, err = startProcess(ctx, "msg=serving", binary, append(args, s.flags...)...)
	if err != nil {
		return nil, err
	}
	l.daemons[s] = d
	d.grpc, d.admin = field(line, "grpc"), field(line, "admin")
	if s.fill > 0 {
		l.progress("filling it with %d keys", s.fill)
		if d.filled, err = d.fill(ctx, s.fill); err != nil {
			return nil, fmt.Errorf("fill the daemon: %w", err)
		}
	}
	if s.assigned > 0 {
		l.progress("assigning numbers to %d users", s.assigned)
		if d.assign, err = newAssigner(ctx, d.admin, s.assigned); err != nil {
			return nil, fmt.Errorf("assign: %w", err)
		}
	}
	return d, nil
}

func (l *lab) redisOf(ctx context.Context, masters int) (*redisServers, error) {
	if r := l.redis[masters]; r != nil {
		return r, nil
	}
	r, err := startRedis(ctx, l.dir, masters)
	if err != nil {
		return nil, err
	}
	l.redis[masters] = r
	if masters == 1 {
		l.bareStates, err = r.bareStates(ctx)
	}
	return r, err
}

// close ends everything that was started.
func (l *lab) close() {
	for _, d := range l.daemons {
		if d.assign != nil {
			d.assign.close()
		}
		d.process.stop()
	}
	for _, r := range l.redis {
		r.stop()
	}
	for _, p := range append(l.callers, l.bare, l.bareTuned) {
		if p != nil {
			p.stop()
		}
	}
	if l.collector != nil {
		l.collector.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// newCollector takes spans and discards them.
func newCollector() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
}

const startDeadline = 30 * time.Second

// process is a server that this program started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu   sync.Mutex
	last []string // lines of its output
}

const keptLines = 10

// startProcess starts a program and waits until it prints a line that holds
// ready, which it returns.
//
// On Linux the child dies with the thread that starts it, so the caller must keep its
// thread for as long as it needs the child.
func startProcess(ctx context.Context, ready, program string, args ...string) (*process, string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = environ()
	cmd.SysProcAttr = dieWithParent()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, "", fmt.Errorf("start %s: %w", program, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	found := make(chan string, 1)
	go p.watch(read, ready, found)
	timeout := time.NewTimer(startDeadline)
	defer timeout.Stop()
	select {
	case line := <-found:
		return p, line, nil
	case <-p.done:
		err = errors.New("it ended")
	case <-timeout.C:
		err = fmt.Errorf("it did not say %q within %v", ready, startDeadline)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.stop()
	return nil, "", fmt.Errorf("start %s: %w; its last words:\n%s", program, err, strings.Join(p.last, "\n"))
}

// environ is the environment without the daemon's own variables.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RATELIMITD_") {
			env = append(env, v)
		}
	}
	return env
}

func (p *process) watch(out io.ReadCloser, ready string, found chan<- string) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), ready) {
			select {
			case found <- lines.Text():
			default:
			}
		}
		p.mu.Lock()
		p.last = append(p.last[max(0, len(p.last)-keptLines+1):], lines.Text())
		p.mu.Unlock()
	}
	_ = p.cmd.Wait()
	out.Close()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// field returns the value of key=value in a line.
func field(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return strings.Trim(value, `"`)
}
