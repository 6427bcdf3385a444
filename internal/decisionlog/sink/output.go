package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// output is what a File writes to. It belongs to the goroutine that writes.
type output struct {
	path     string
	maxSize  int64
	settings *decisionlog.Settings
	inForce  *limits // nil before any were announced
	scratch  []byte

	to io.WriteCloser // nil while there is none
	// rotating writes regular files. It names, compresses and removes rotated ones; when
	// to rotate is decided here, where the line about limits can follow.
	rotating  *lumberjack.Logger
	rotatedAt time.Time
	opened    fs.FileInfo // of the path when it was opened
	// size is how many bytes a regular file has, of which the first head come from the
	// line about limits.
	size, head int64
	// owesLimits says that the line about the limits in force is still to be written,
	// before any other: the disk may have been full.
	owesLimits bool
	// isTorn is set if the last byte of the file does not end a line.
	isTorn bool
	// checkAt is when to check next whether the file was moved, and retryAt when to
	// open it again after a failure.
	checkAt, retryAt time.Time
	failure          error
}

func newOutput(o Options) *output {
	u := &output{path: o.Path, maxSize: o.MaxSize, settings: o.Settings}
	// lumberjack refuses lines longer than its own maximum.
	u.rotating = &lumberjack.Logger{Filename: o.Path, MaxSize: math.MaxInt32}
	if o.MaxSize > 0 {
		u.rotating.MaxBackups, u.rotating.Compress = o.Keep, o.Compress
	}
	return u
}

// checkEvery is how often a file is looked for by its path, and reopened after a failure.
const checkEvery = time.Second

// open opens the path. A file that is not the one before begins with the limits in force.
func (u *output) open() error {
	was := u.opened
	if err := u.openPath(); err != nil {
		return u.failed(notWritable(u.path, err))
	}
	u.checkAt = time.Now().Add(checkEvery)
	isSame := was != nil && os.SameFile(was, u.opened) && u.opened.Size() >= u.size
	if u.size = u.opened.Size(); !isSame {
		u.head, u.owesLimits = 0, u.inForce != nil
	}
	return u.payLimits()
}

func (u *output) openPath() error {
	var file *os.File
	var err error
	if u.path == Stdout {
		// A copy: when nothing reads descriptor 1 any more, writing there ends the
		// process.
		fd, err := syscall.Dup(int(os.Stdout.Fd()))
		if err != nil {
			return err
		}
		syscall.CloseOnExec(fd)
		file = os.NewFile(uintptr(fd), "standard output")
	} else if file, err = os.OpenFile(u.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640); err != nil {
		// For reading, too: this way a FIFO can be opened before it is read.
		return err
	}
	if u.opened, err = file.Stat(); err != nil {
		return errors.Join(err, file.Close())
	}
	u.to, u.isTorn = file, false
	if !u.isRegular() {
		return nil
	}
	if u.opened.Size() > 0 {
		var last [1]byte
		if _, err := file.ReadAt(last[:], u.opened.Size()-1); err == nil {
			u.isTorn = last[0] != '\n' // its writer was killed
		}
	}
	u.to = u.rotating // opens the file at the next write
	return file.Close()
}

// isRegular reports whether what was opened is a file that can be rotated.
func (u *output) isRegular() bool { return u.path != Stdout && u.opened.Mode().IsRegular() }

// shut closes the file, to be reopened.
func (u *output) shut() {
	if u.to != nil {
		u.to.Close()
		u.to = nil
	}
}

// failed closes a file that cannot be written, and has it opened again later.
func (u *output) failed(err error) error {
	u.shut()
	u.retryAt, u.failure = time.Now().Add(checkEvery), err
	return err
}

// announce puts limits in force, and writes them.
func (u *output) announce(l *limits) error {
	u.inForce, u.owesLimits = l, true
	if u.to == nil {
		return nil // the next line comes after them
	}
	return u.payLimits()
}

// payLimits writes the line about the limits in force, if it is still to be written.
func (u *output) payLimits() error {
	if !u.owesLimits {
		return nil
	}
	isFirst := u.size == 0
	line := decisionlog.Line{Kind: decisionlog.Loaded, At: time.Now().UnixMicro(), Limits: u.inForce.fingerprint, Settings: u.settings, Files: u.inForce.files}
	u.scratch = append(line.AppendJSON(u.scratch[:0]), '\n')
	n, err := u.put(u.scratch)
	u.owesLimits = n < len(u.scratch)
	if isFirst {
		u.head = u.size
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
		if room := u.room(); int64(len(part)) > room {
			part = part[:linesWithin(part, room)]
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

// room is how many bytes of lines the file may still take. A file has room for at least
// as many as the line about limits that begins it has, so that long limits do not give
// each line a file of its own.
func (u *output) room() int64 {
	if u.maxSize == 0 || !u.isRegular() {
		return math.MaxInt64
	}
	return max(u.maxSize, 2*u.head) - u.size
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
	if u.to != nil && u.path != Stdout && now.After(u.checkAt) {
		u.checkAt = now.Add(checkEvery)
		if u.isMoved() {
			u.shut()
		}
	}
	switch {
	case u.to != nil:
		return u.payLimits()
	case now.Before(u.retryAt):
		return u.failure
	}
	return u.open()
}

// isMoved reports whether the path names another file than the open one, or the file was
// truncated, as logrotate does with copytruncate.
func (u *output) isMoved() bool {
	named, err := os.Stat(u.path)
	return err != nil || !os.SameFile(named, u.opened) || u.isRegular() && named.Size() < u.size
}

// put writes lines to the file, and returns how many bytes of whole lines it took. A
// partial line is taken back.
func (u *output) put(lines []byte) (n int, err error) {
	if u.isTorn {
		if _, err := u.to.Write(newline); err != nil {
			return 0, u.failed(err)
		}
		u.isTorn = false
		u.size++
	}
	wrote, err := u.to.Write(lines)
	whole := linesWithin(lines, int64(wrote))
	u.size += int64(whole)
	if err != nil {
		if u.isRegular() && wrote > whole {
			_ = os.Truncate(u.path, u.size) // if that fails, open ends the line
		}
		return whole, u.failed(err)
	}
	return whole, nil
}

// rotatesEvery is the precision of the names of rotated files: two rotations within it
// would give one file.
const rotatesEvery = time.Millisecond

// rotate puts the file away and begins another. While that fails, the file stays as it
// is: it may not grow, and its lines are not given up for new ones.
func (u *output) rotate() error {
	if !u.isMoved() {
		time.Sleep(time.Until(u.rotatedAt.Add(rotatesEvery)))
		if err := u.rotating.Rotate(); err != nil {
			return u.failed(fmt.Errorf("the file is full and cannot be rotated: %w", err))
		}
		u.rotatedAt = time.Now()
	}
	u.shut() // what Rotate opens does not append, and so would not survive a truncation
	return u.open()
}
