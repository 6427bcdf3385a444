package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// output is what a File writes to. It belongs to the goroutine that writes.
type output struct {
	path     string
	maxSize  int64
	rotated  *rotated
	settings *decisionlog.Settings
	inForce  *limits // nil before any were announced
	scratch  []byte
	isStdout bool

	file *os.File // nil while there is none
	// isRegular files are rotated, and have size bytes, of which the first head come
	// from the line about limits.
	isRegular  bool
	size, head int64
	// owesLimits says that the line about the limits in force is still to be written,
	// before any other: the disk may have been full.
	owesLimits bool
	// rotateSize is the size at which the file is rotated; 0 is never.
	rotateSize int64
	// isTorn is set if the last byte that was written does not end a line.
	isTorn bool
	// checkAt is when to look next whether the file was moved, and retryAt when to
	// open it again after that failed.
	checkAt, retryAt time.Time
	failure          error // of the last opening
	// rotateAt and rotateFailure are the same for rotating.
	rotateAt      time.Time
	rotateFailure error
}

func newOutput(o Options) *output {
	return &output{path: o.Path, maxSize: o.MaxSize, settings: o.Settings, isStdout: o.Path == Stdout, rotated: newRotated(o)}
}

// lookEvery is how often a file is looked for by its path, and reopened if that failed.
const lookEvery = time.Second

// open opens the file, and begins it with the limits in force.
func (u *output) open() error {
	if err := u.openFile(); err != nil {
		u.retryAt, u.failure = time.Now().Add(lookEvery), notWritable(u.path, err)
		return u.failure
	}
	u.checkAt, u.retryAt, u.rotateAt = time.Now().Add(lookEvery), time.Time{}, time.Time{}
	u.head, u.rotateSize, u.owesLimits = 0, u.maxSize, u.inForce != nil
	return u.payLimits()
}

func (u *output) openFile() error {
	var err error
	if u.isStdout {
		// A copy: when nobody reads descriptor 1 any more, writing there ends the
		// process.
		fd, err := syscall.Dup(int(os.Stdout.Fd()))
		if err != nil {
			return err
		}
		syscall.CloseOnExec(fd)
		u.file, u.isRegular = os.NewFile(uintptr(fd), "standard output"), false
		return nil
	}
	// For reading, too: this way a FIFO can be opened before anybody reads it. It then
	// takes what fits in it, and the rest waits here.
	if u.file, err = os.OpenFile(u.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640); err != nil {
		u.file = nil
		return err
	}
	info, err := u.file.Stat()
	if err != nil {
		u.shut()
		return err
	}
	u.isRegular, u.size, u.isTorn = info.Mode().IsRegular(), info.Size(), false
	if u.isRegular && u.size > 0 {
		var last [1]byte
		if _, err := u.file.ReadAt(last[:], u.size-1); err == nil || errors.Is(err, io.EOF) {
			u.isTorn = last[0] != '\n' // whoever wrote it was killed
		}
	}
	return nil
}

// shut closes the file, to be reopened.
func (u *output) shut() {
	if u.file != nil {
		u.file.Close()
		u.file = nil
	}
}

// close closes the output.
func (u *output) close() {
	u.shut()
	u.rotated.close()
}

// announce puts limits in force, and writes them.
func (u *output) announce(l *limits) error {
	u.inForce, u.owesLimits = l, true
	if u.file == nil {
		return nil // each file begins with them
	}
	return u.payLimits()
}

// payLimits writes the line about the limits in force, if it is still to be written. A
// file that begins with it has at least as much room for others, so that long limits do
// not give each line a file of its own.
func (u *output) payLimits() error {
	if !u.owesLimits {
		return nil
	}
	isFirst := u.size == 0
	line := decisionlog.Line{Kind: decisionlog.Loaded, At: time.Now().UnixMicro(), Limits: u.inForce.fingerprint, Settings: u.settings, Files: u.inForce.files}
	u.scratch = append(line.AppendJSON(u.scratch[:0]), '\n')
	n, err := u.put(u.scratch)
	u.owesLimits = n < len(u.scratch)
	if isFirst && !u.owesLimits {
		u.head = u.size
		if u.maxSize > 0 {
			u.rotateSize = max(u.maxSize, 2*u.head)
		}
	}
	if cap(u.scratch) > keptBytes {
		u.scratch = nil
	}
	return err
}

// write writes whole lines, over several files if necessary, and returns how many bytes
// of whole lines were written.
func (u *output) write(text []byte) (n int, err error) {
	for n < len(text) {
		if err := u.ready(); err != nil {
			return n, err
		}
		part := text[n:]
		if u.isRegular && u.rotateSize > 0 && u.size+int64(len(part)) > u.rotateSize {
			part = part[:linesWithin(part, u.rotateSize-u.size)]
			if len(part) == 0 && u.size > u.head {
				if err := u.rotate(); err != nil {
					return n, err
				}
				continue
			}
			if len(part) == 0 { // a line that is longer than a file
				part = text[n : n+bytes.IndexByte(text[n:], '\n')+1]
			}
		}
		m, err := u.put(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// linesWithin returns how many bytes the whole lines have that fit in room.
func linesWithin(text []byte, room int64) int {
	if room <= 0 {
		return 0
	}
	return bytes.LastIndexByte(text[:min(int64(len(text)), room)], '\n') + 1
}

// ready opens the file if there is none, or if its path no longer names it. It then has
// the line about the limits in force.
func (u *output) ready() error {
	now := time.Now()
	if u.file != nil && !u.isStdout && now.After(u.checkAt) {
		u.checkAt = now.Add(lookEvery)
		if u.isMoved() {
			u.shut()
		}
	}
	if u.file != nil {
		return u.payLimits()
	}
	if now.Before(u.retryAt) {
		return u.failure
	}
	return u.open()
}

// isMoved reports whether the path names another file than the open one, or somebody has
// truncated that, as logrotate does with copytruncate.
func (u *output) isMoved() bool {
	named, err := os.Stat(u.path)
	if err != nil {
		return true
	}
	opened, err := u.file.Stat()
	return err != nil || !os.SameFile(named, opened) || u.isRegular && opened.Size() < u.size
}

// put writes lines to the file, and returns how many bytes of whole lines it took. A
// partial line is taken back, or else ended before the next.
func (u *output) put(lines []byte) (n int, err error) {
	if u.isTorn {
		if _, err := u.file.Write(newline); err != nil {
			return 0, u.failed(err)
		}
		u.isTorn = false
		u.size++
	}
	wrote, err := u.writeAll(lines)
	whole := linesWithin(lines, int64(wrote))
	u.size += int64(wrote)
	if err == nil {
		return whole, nil
	}
	if wrote > whole {
		u.isTorn = true
		if u.isRegular && u.file.Truncate(u.size-int64(wrote-whole)) == nil {
			u.size -= int64(wrote - whole)
			u.isTorn = false
		}
	}
	return whole, u.failed(err)
}

// writeAll writes to the file. While nobody reads a FIFO it waits, but only as long as
// the path names that FIFO: nobody will read one that was removed.
func (u *output) writeAll(text []byte) (n int, err error) {
	for {
		_ = u.file.SetWriteDeadline(time.Now().Add(lookEvery)) // files on a disk have none
		m, err := u.file.Write(text[n:])
		n += m
		if !errors.Is(err, os.ErrDeadlineExceeded) || !u.isStdout && u.isMoved() {
			return n, err
		}
	}
}

// failed closes a file that cannot be written, unless its disk is full and may have room
// again: otherwise each try would begin it again.
func (u *output) failed(err error) error {
	if !u.isRegular || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		u.shut()
		u.retryAt, u.failure = time.Now().Add(lookEvery), err
	}
	return err
}

// rotate puts the file away and begins another. While that fails, the file stays as it
// is: it may not grow, and its lines are not given up for new ones.
func (u *output) rotate() error {
	if u.isMoved() { // somebody else did it
		u.shut()
		return u.open()
	}
	now := time.Now()
	if now.Before(u.rotateAt) {
		return u.rotateFailure
	}
	if err := u.rotated.add(); err != nil {
		u.rotateAt, u.rotateFailure = now.Add(lookEvery), fmt.Errorf("the file is full and cannot be rotated: %w", err)
		return u.rotateFailure
	}
	u.shut()
	return u.open()
}
