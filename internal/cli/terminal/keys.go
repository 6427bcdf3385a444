package terminal

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Screen is what a command shows something on.
type Screen struct {
	Out, Err io.Writer
	Width    int // at which tables are wrapped; 0: never
	// Hint says how to end the display; it is empty if no key does.
	Hint string
}

// Keys as sent by a raw terminal.
const (
	ctrlC         = 0x03
	ctrlD         = 0x04
	ctrlZ         = 0x1a
	ctrlBackslash = 0x1c
)

// UntilKey shows something until q is pressed, or any other key that ends a program in a
// terminal, or ctx ends. The terminal is restored however it returns, even by a panic.
// Without a terminal for both output and input, and in the background, only ctx ends it.
func UntilKey(ctx context.Context, in io.Reader, to Screen, show func(context.Context, Screen) error) error {
	keys, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(keys.Fd())) || !Is(to.Out) || isInBackground(keys) {
		return show(ctx, to)
	}
	t := &rawTerminal{fd: int(keys.Fd())}
	if err := t.makeRaw(); err != nil {
		return show(ctx, to)
	}
	defer t.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer t.end()
		defer cancel()
		t.readKeys(keys)
	}()
	return show(ctx, Screen{Out: crlf{to.Out}, Err: crlf{to.Err}, Width: to.Width, Hint: "q ends\n"})
}

// isInBackground reports whether another job has the terminal: reading from it or
// changing it would stop this one.
func isInBackground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// rawTerminal is a terminal that sends each key at once.
type rawTerminal struct {
	fd     int
	mu     sync.Mutex
	before *term.State // nil while unchanged
	ended  bool
}

// makeRaw makes the terminal raw, unless it is or has ended.
func (t *rawTerminal) makeRaw() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.before == nil {
		t.before, err = term.MakeRaw(t.fd)
	}
	return err
}

// restore restores the state of the terminal.
func (t *rawTerminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before != nil {
		_ = term.Restore(t.fd, t.before) // if that fails, the terminal is gone
		t.before = nil
	}
}

// end restores the terminal permanently.
func (t *rawTerminal) end() {
	t.restore()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// readKeys returns when a key ends the program, or at the end of input.
func (t *rawTerminal) readKeys(from io.Reader) {
	var pressed [16]byte
	for {
		n, err := from.Read(pressed[:])
		if err != nil {
			return
		}
		for _, key := range pressed[:n] {
			switch key {
			case 'q', 'Q', ctrlC, ctrlD, ctrlBackslash:
				return
			case ctrlZ:
				t.suspend()
			}
		}
	}
}

// stopsWithin is how long a job keeps running at most after the signal to stop.
const stopsWithin = time.Second

// suspend stops the job until the shell continues it.
func (t *rawTerminal) suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	t.restore()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	// The signal does not stop the job immediately, and if it is ignored it never does.
	select {
	case <-continued:
	case <-time.After(stopsWithin):
	}
	_ = t.makeRaw()
}

// crlf writes lines to a raw terminal, which does not return to the first column by
// itself.
type crlf struct{ to io.Writer }

// Write implements io.Writer.
func (w crlf) Write(text []byte) (int, error) {
	_, err := w.to.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
	return len(text), err
}
