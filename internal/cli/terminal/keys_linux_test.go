package terminal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/terminaltest"
)

// An error and a panic leave the terminal as it was.
func TestTerminalIsRestored(t *testing.T) {
	t.Parallel()
	p := terminaltest.Open(t)
	to := Screen{Out: p.Program, Err: p.Program}
	failure := errors.New("it fails")
	if err := UntilKey(t.Context(), p.Program, to, func(context.Context, Screen) error { return failure }); !errors.Is(err, failure) || !p.IsAsBefore() {
		t.Errorf("it ends with %v; the terminal is as before: %v", err, p.IsAsBefore())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = UntilKey(t.Context(), p.Program, to, func(context.Context, Screen) error { panic("it panics") })
	}()
	if !p.IsAsBefore() {
		t.Error("after a panic the terminal is raw")
	}
}

// Input that is no terminal is not read, and does not end what is watched.
func TestOtherInputDoesNotEndWhatIsWatched(t *testing.T) {
	t.Parallel()
	p := terminaltest.Open(t)
	in := strings.NewReader("q")
	err := UntilKey(t.Context(), in, Screen{Out: p.Program, Err: p.Program}, func(ctx context.Context, to Screen) error {
		if _, isRaw := to.Out.(crlf); isRaw {
			t.Error("the terminal is raw")
		}
		return ctx.Err()
	})
	if err != nil || in.Len() != 1 || !p.IsAsBefore() {
		t.Errorf("it ends with %v, and %d bytes are left", err, in.Len())
	}
}
