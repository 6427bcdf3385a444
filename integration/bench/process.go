package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

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
// On Linux the child dies with the thread that starts it, so the caller keeps
// to its thread for as long as it needs the child.
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
