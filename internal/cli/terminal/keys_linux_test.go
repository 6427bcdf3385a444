package terminal_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
)

// An error and a panic leave the terminal as it was.
func TestTerminalIsRestored(t *testing.T) {
	t.Parallel()
	p := clitest.OpenTerminal(t)
	to := terminal.Screen{Out: p.Program, Err: p.Program}
	failure := errors.New("it fails")
	if err := terminal.UntilKey(t.Context(), p.Program, to, func(context.Context, terminal.Screen) error { return failure }); !errors.Is(err, failure) || !p.IsAsBefore() {
		t.Errorf("it ends with %v; the terminal is as before: %v", err, p.IsAsBefore())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = terminal.UntilKey(t.Context(), p.Program, to, func(context.Context, terminal.Screen) error { panic("it panics") })
	}()
	if !p.IsAsBefore() {
		t.Error("after a panic the terminal is raw")
	}
}

// Input that is no terminal is not read, and does not end what is watched.
func TestOtherInputDoesNotEndWhatIsWatched(t *testing.T) {
	t.Parallel()
	p := clitest.OpenTerminal(t)
	in := strings.NewReader("q")
	err := terminal.UntilKey(t.Context(), in, terminal.Screen{Out: p.Program, Err: p.Program}, func(ctx context.Context, to terminal.Screen) error {
		if to.Hint != "" {
			t.Error("the terminal is raw")
		}
		return ctx.Err()
	})
	if err != nil || in.Len() != 1 || !p.IsAsBefore() {
		t.Errorf("it ends with %v, and %d bytes are left", err, in.Len())
	}
}
