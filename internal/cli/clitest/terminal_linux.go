package clitest

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// Terminal is a pseudo terminal: typed text goes to Keys, and Shown holds what a program
// writes to it.
type Terminal struct {
	Keys, Program *os.File
	Shown         asynctest.Buffer
	before        *term.State
}

// OpenTerminal opens a terminal of 24 rows and 80 columns, which is closed with the test. The
// test is skipped where there are none.
func OpenTerminal(t *testing.T) *Terminal {
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
	p := &Terminal{Keys: master, Program: slave}
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
			_, _ = p.Shown.Write(buffer[:n])
		}
	}()
	return p
}

// IsAsBefore reports whether the terminal is in the state in which it was opened.
func (p *Terminal) IsAsBefore() bool {
	now, err := term.GetState(int(p.Program.Fd()))
	return err == nil && reflect.DeepEqual(now, p.before)
}
