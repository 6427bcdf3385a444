//go:build unix

package redistest

import (
	"context"
	_ "embed" // the preloaded code
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the wall clock of a server of a test's own.
type Clock struct {
	t testing.TB
	// path is that of the file with the offset, which the server may read at any
	// time, so that it must never be truncated.
	path string
}

// StartWithClock is Start for a server whose clock the test steps. The clock is
// right at first. Without gcc the test is skipped, or fails in CI.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	clock := &Clock{t: t}
	p, err := startRetrying(ctx, func(p *process) error {
		p.serve(args)
		return clock.preload(ctx, p)
	})
	check(t, err)
	return newServer(t, p), clock
}

// Set steps the clock to so far ahead of this machine's, or behind if negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	check(c.t, c.set(ahead))
}

func (c *Clock) set(ahead time.Duration) error {
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("set a server's clock: %w", err)
	}
	if _, err := file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds()))); err != nil {
		return errors.Join(fmt.Errorf("set a server's clock: %w", err), file.Close())
	}
	return file.Close()
}

// preload gives the process a clock that follows the file in its directory.
func (c *Clock) preload(ctx context.Context, p *process) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a server's clock that steps is %w but on Linux", errUnavailable)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return fmt.Errorf("gcc on PATH is %w", errUnavailable)
	}
	source, library := filepath.Join(p.dir, "clock.c"), filepath.Join(p.dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return fmt.Errorf("write the source of a server's clock: %w", err)
	}
	if out, err := exec.CommandContext(ctx, gcc, "-O1", "-fPIC", "-shared", "-o", library, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compile a server's clock: %w: %s", err, out)
	}
	c.path = filepath.Join(p.dir, "clock")
	p.env = []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + c.path}
	return c.set(0)
}
