//go:build unix

package redistest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Ports lie below the range that the kernel picks clients' ports from (32768
// up on Linux), so that no connection takes the port of a server that is down
// for a while, and none that is dialed in a loop connects to itself.
const (
	minPort = 10000
	maxPort = 19999
	// busOffset is how far above its port a cluster node's bus port lies.
	busOffset = 10000
)

// reservePort finds a port that is free, and whose bus port is free too. As long as its
// UDP port is bound, no other test process gets it from here. A stranger may still take
// it: who starts a server must be ready to try another.
func reservePort() (port int, release func(), err error) {
	for range 1000 {
		port := minPort + rand.IntN(maxPort-minPort+1)
		lock, err := net.ListenPacket("udp4", loopback(port))
		if err != nil {
			continue
		}
		if bindable(port) && bindable(port+busOffset) {
			return port, func() { lock.Close() }, nil
		}
		lock.Close()
	}
	return 0, nil, fmt.Errorf("no free port between %d and %d", minPort, maxPort)
}

func bindable(port int) bool {
	l, err := net.Listen("tcp4", loopback(port))
	return err == nil && l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreePort returns a TCP port on 127.0.0.1 that nothing listens on, and that
// no other test gets from this package before t ends. It lies below the ports
// that outgoing connections get.
func FreePort(t testing.TB) int {
	t.Helper()
	port, release, err := reservePort()
	check(t, err)
	t.Cleanup(release)
	return port
}

// errBind means that a server ended because someone else has its port.
var errBind = errors.New("the port is taken")

// process is a redis-server child process, with a port and a directory that
// stay its own while it is down. Its methods are not for concurrent use.
type process struct {
	bin      string
	args     []string
	env      []string // beside this process's own
	port     int
	release  func() // of the port
	dir      string
	password string // of the default user, "" for none

	cmd *exec.Cmd
	// exited is closed when cmd has been waited for.
	exited chan struct{}
}

// startProcess starts a redis-server with args after the usual ones, and
// returns when it answers. It takes another port when a stranger took its.
func startProcess(ctx context.Context, args ...string) (*process, error) {
	return startRetrying(ctx, func(p *process) error {
		p.serve(args)
		return nil
	})
}

// serve gives the process args after those that a redis-server usually gets.
func (p *process) serve(args []string) {
	p.args = append([]string{
		"--port", strconv.Itoa(p.port),
		"--bind", "127.0.0.1",
		"--dir", p.dir,
		"--daemonize", "no",
		"--save", "",
		"--appendonly", "no",
		// A replica does not wait for others to share its first copy.
		"--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1",
	}, args...)
	for i, arg := range args[:max(len(args)-1, 0)] {
		if arg == "--requirepass" {
			p.password = args[i+1]
		}
	}
}

// startRetrying starts a process that configure has given its arguments, on
// one port after the other until one is free.
func startRetrying(ctx context.Context, configure func(*process) error) (*process, error) {
	server := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")
	bin, err := exec.LookPath(server)
	if err != nil {
		return nil, fmt.Errorf("%s on PATH is %w", server, errUnavailable)
	}
	for {
		p := &process{bin: bin}
		if err := p.prepare(configure); err != nil {
			p.discard()
			return nil, err
		}
		err := p.start(ctx)
		if err == nil {
			return p, nil
		}
		p.discard()
		if !errors.Is(err, errBind) {
			return nil, err
		}
	}
}

func (p *process) prepare(configure func(*process) error) (err error) {
	if p.port, p.release, err = reservePort(); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "redistest-*"); err != nil {
		return fmt.Errorf("make a server's directory: %w", err)
	}
	return configure(p)
}

func (p *process) addr() string { return loopback(p.port) }

func (p *process) client() *redis.Client { return dial(p.addr(), p.password) }

func (p *process) logPath() string { return filepath.Join(p.dir, "log") }

// start starts the process and waits until it answers.
func (p *process) start(ctx context.Context) error {
	out, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open a server's log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(p.bin, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, out, out
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = dieWithParent
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.bin, err)
	}
	exited := make(chan struct{})
	go func() { // ends with the process, which kill sees to
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	if err := p.waitReady(ctx); err != nil {
		p.kill()
		return err
	}
	return nil
}

// waitReady waits until this very process answers: when it could not have its
// port, another server may answer there.
func (p *process) waitReady(ctx context.Context) error {
	// Looking for the end of the process between dials costs a poll at most.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := p.client()
	defer c.Close()
	return until(ctx, "wait for redis-server", func(ctx context.Context) error {
		select {
		case <-p.exited:
			err := p.whyExited()
			cancel(err)
			return err
		default:
		}
		// A client that could not dial waits for a second.
		conn, err := net.Dial("tcp", p.addr())
		if err != nil {
			return err
		}
		conn.Close()
		info, err := c.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		if pid := infoField(info, "process_id"); pid != strconv.Itoa(p.cmd.Process.Pid) {
			return fmt.Errorf("process %s answers at %s", pid, p.addr())
		}
		return nil
	})
}

// whyExited returns what a process that ended by itself said last.
func (p *process) whyExited() error {
	log, _ := os.ReadFile(p.logPath())
	if bytes.Contains(log, []byte("Address already in use")) {
		return errBind
	}
	return fmt.Errorf("redis-server ended: %v: %s", p.cmd.ProcessState, tail(log, 10))
}

func tail(log []byte, lines int) string {
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// running reports whether the process has been started and not ended.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process if it runs, paused or not, and waits for its end.
func (p *process) kill() {
	if p.running() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// restart starts the process again on its port. A stranger may have the port
// for a moment, then this waits.
func (p *process) restart(ctx context.Context) error {
	for {
		err := p.start(ctx)
		if !errors.Is(err, errBind) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * pollEvery):
		}
	}
}

// discard ends the process and gives back what it held.
func (p *process) discard() {
	p.kill()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	if p.release != nil {
		p.release()
	}
}

// pollEvery is the pause between two looks at a state that is waited for.
const pollEvery = 10 * time.Millisecond

// dial returns a client that retries nothing, so that errors come at once.
func dial(addr, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Password:                 password,
		PoolSize:                 1,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              10 * time.Second,
		ReadTimeout:              10 * time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// until calls state until it returns nil. If ctx ends first, until returns the last
// error of state.
func until(ctx context.Context, what string, state func(context.Context) error) error {
	for {
		err := state(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// infoField returns the value of a field in a reply to INFO or CLUSTER INFO.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return v
		}
	}
	return ""
}
