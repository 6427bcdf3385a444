//go:build unix

package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// errBind means that a server ended because someone else has its port.
var errBind = errors.New("the port is taken")

// process is a redis-server child process, with a port and a directory that
// stay its own while it is down. Its methods are not for concurrent use.
type process struct {
	bin      string
	args     []string
	env      []string // beside this process's own
	port     int
	dir      string
	password string // of the default user, "" for none

	cmd *exec.Cmd
	// exited is closed when cmd has been waited for.
	exited chan struct{}
}

// lookRedis finds redis-server on PATH.
func lookRedis() (string, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redis-server on PATH is %w", errUnavailable)
	}
	return bin, nil
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
// one port after the other until nobody else has it.
func startRetrying(ctx context.Context, configure func(*process) error) (*process, error) {
	bin, err := lookRedis()
	if err != nil {
		return nil, err
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
	if p.port, err = reservePort(); err != nil {
		return err
	}
	if p.dir, err = newDir(); err != nil {
		return err
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
	if err := spawn(cmd); err != nil {
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
// port, the server of somebody else may answer there.
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
		if err := knock(ctx, p.addr()); err != nil {
			return err
		}
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

func (p *process) signal(sig syscall.Signal) error {
	if !p.running() {
		return errors.New("redis-server is not running")
	}
	return p.cmd.Process.Signal(sig)
}

// kill ends the process if it runs, paused or not, and waits for its end.
func (p *process) kill() {
	if p.running() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// terminate ends the process if it runs as an operator would, and waits.
func (p *process) terminate(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	// A paused process sees the signal when it goes on.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of redis-server: %w", ctx.Err())
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
	if p.port != 0 {
		releasePort(p.port)
	}
}
