package main

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

// screen is what a command shows something on.
type screen struct {
	out, err io.Writer
	width    int // at which tables are wrapped; 0: never
	// hint says how to end what is shown; it is empty where no key does.
	hint string
}

// Keys of a terminal that sends each at once.
const (
	ctrlC         = 0x03
	ctrlD         = 0x04
	ctrlZ         = 0x1a
	ctrlBackslash = 0x1c
)

// untilKey shows something until q is pressed, or what else ends a program in a terminal, or
// ctx ends. The terminal is as before however it returns, also by a panic. Without a
// terminal that shows and is asked, and in the background, only ctx ends it.
func untilKey(ctx context.Context, in io.Reader, to screen, show func(context.Context, screen) error) error {
	keys, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(keys.Fd())) || !isTerminal(to.out) || isInBackground(keys) {
		return show(ctx, to)
	}
	t := &rawTerminal{fd: int(keys.Fd())}
	if err := t.begin(); err != nil {
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
	return show(ctx, screen{out: crlf{to.out}, err: crlf{to.err}, width: to.width, hint: "q ends\n"})
}

// isInBackground reports whether another job has the terminal: to read from it or to change
// it would stop this one.
func isInBackground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// rawTerminal is a terminal that sends each key at once.
type rawTerminal struct {
	fd     int
	mu     sync.Mutex
	before *term.State // nil while it is as it was
	ended  bool
}

func (t *rawTerminal) begin() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.before == nil {
		t.before, err = term.MakeRaw(t.fd)
	}
	return err
}

// restore makes the terminal what it was.
func (t *rawTerminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before != nil {
		_ = term.Restore(t.fd, t.before) // it is gone if that fails
		t.before = nil
	}
}

// end restores the terminal for good.
func (t *rawTerminal) end() {
	t.restore()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// readKeys returns when a key ends the program, or when there are no more.
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

// stopsWithin is how long a job runs at most that was told to stop.
const stopsWithin = time.Second

// suspend stops the job until the shell continues it.
func (t *rawTerminal) suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	t.restore()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	// The signal stops the job only soon, and where it is ignored it never does.
	select {
	case <-continued:
	case <-time.After(stopsWithin):
	}
	_ = t.begin()
}

// crlf writes lines on a raw terminal, which does not go back to the first column by
// itself.
type crlf struct{ to io.Writer }

// Write implements io.Writer.
func (w crlf) Write(text []byte) (int, error) {
	_, err := w.to.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
	return len(text), err
}
