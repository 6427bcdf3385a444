package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// terminal is a pseudo terminal: what is typed goes to keys, and shown has what a program
// writes on it.
type terminal struct {
	keys, program *os.File
	shown         asynctest.Buffer
	before        *term.State
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	p := &terminal{keys: master, program: slave}
	if p.before, err = term.GetState(int(slave.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			_, _ = p.shown.Write(buffer[:n])
		}
	}()
	return p
}

func (p *terminal) isAsBefore() bool {
	now, err := term.GetState(int(p.program.Fd()))
	return err == nil && reflect.DeepEqual(now, p.before)
}

// q ends what is watched, and so does what ends any program; the terminal is then as it
// was.
func TestKeysEndWhatIsWatched(t *testing.T) {
	t.Setenv("COLUMNS", "")
	f := startFakeAdmin(t)
	for name, press := range map[string]string{"q": "q", "Ctrl-C": "\x03", "Ctrl-D": "\x04", "others, then Q": "xyz\rQ", "a context": ""} {
		p := openTerminal(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- run(ctx, []string{"ratelimitd", "top", "--watch", "--admin-address", f.address}, p.program, p.program, p.program)
		}()
		asynctest.Eventually(t, "something is shown", func() bool { return strings.Contains(p.shown.String(), "nobody else had more") })
		if p.isAsBefore() {
			t.Errorf("%s: the terminal waits for whole lines", name)
		}
		if press == "" {
			cancel()
		} else if _, err := p.keys.WriteString(press); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || !p.isAsBefore() {
			t.Errorf("%s: it ends with %v; the terminal is as before: %v", name, err, p.isAsBefore())
		}
		if text := p.shown.String(); strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\n") {
			t.Errorf("%s: lines do not go back to the first column: %q", name, text)
		}
		cancel()
	}
}

// An error and a panic leave the terminal as it was.
func TestTerminalIsRestored(t *testing.T) {
	t.Parallel()
	p := openTerminal(t)
	to := screen{out: p.program, err: p.program}
	failure := errors.New("it fails")
	if err := untilKey(t.Context(), p.program, to, func(context.Context, screen) error { return failure }); !errors.Is(err, failure) || !p.isAsBefore() {
		t.Errorf("it ends with %v; the terminal is as before: %v", err, p.isAsBefore())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = untilKey(t.Context(), p.program, to, func(context.Context, screen) error { panic("it panics") })
	}()
	if !p.isAsBefore() {
		t.Error("after a panic the terminal is raw")
	}
}

// Input that is no terminal is not read, and does not end what is watched.
func TestOtherInputDoesNotEndWhatIsWatched(t *testing.T) {
	t.Parallel()
	p := openTerminal(t)
	in := strings.NewReader("q")
	err := untilKey(t.Context(), in, screen{out: p.program, err: p.program}, func(ctx context.Context, to screen) error {
		if _, isRaw := to.out.(crlf); isRaw {
			t.Error("the terminal is raw")
		}
		return ctx.Err()
	})
	if err != nil || in.Len() != 1 || !p.isAsBefore() {
		t.Errorf("it ends with %v, and %d bytes are left", err, in.Len())
	}
}
