//go:build unix

package redistest

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// Server is a redis-server process of a test's own. Its methods end the test
// when they fail, so they belong in the test's goroutine.
type Server struct {
	t testing.TB
	p *process
}

// Start starts the redis-server on PATH, with args, on a port and in a
// directory of its own. It ends with the test. The test is skipped, in CI
// fails, where there is none.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	p, err := startProcess(ctx, args...)
	check(t, err)
	return newServer(t, p)
}

// newServer hands a process to the test, which ends it.
func newServer(t testing.TB, p *process) *Server {
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(p.logPath())
			t.Logf("redistest: the log of %s ends:\n%s", p.addr(), tail(log, 20))
		}
		p.discard()
	})
	return &Server{t: t, p: p}
}

// Addr returns the server's address, host:port, the same while it is down.
func (s *Server) Addr() string { return s.p.addr() }

// Kill ends the server by SIGKILL and waits for its end. It does nothing when
// the server is down.
func (s *Server) Kill() { s.p.kill() }

// Pause stops the server by SIGSTOP: connections stay, and the kernel accepts
// new ones, but nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	check(s.t, s.p.cmd.Process.Signal(syscall.SIGSTOP))
}

// Resume undoes Pause.
func (s *Server) Resume() {
	s.t.Helper()
	check(s.t, s.p.cmd.Process.Signal(syscall.SIGCONT))
}

// Restart starts the server again on its port, after killing it if it runs,
// and returns when it answers. Its data are lost; a cluster node knows its
// cluster.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	ctx, cancel := context.WithTimeout(s.t.Context(), startTimeout)
	defer cancel()
	check(s.t, s.p.restart(ctx))
}
