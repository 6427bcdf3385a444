package find

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
)

// Begin says where following begins.
type Begin int

// Begins.
const (
	// FromRotated begins with the oldest rotated file.
	FromRotated Begin = iota
	// FromFile begins with the file itself.
	FromFile
	// FromNow begins with what is written from now on.
	FromNow
)

// overlap is how long reading goes on in a file that was moved away: a daemon writes to
// it until it notices, within a second.
const overlap = 1500 * time.Millisecond

// Follow looks through the file of a path, and goes on as it is written, rotated, moved away
// or truncated, until the context of the Finder ends. It waits for a file that is not
// there.
func (f *Finder) Follow(path string, begin Begin) error {
	after, err := f.beginning(path, begin)
	if err != nil {
		return err
	}
	fromEnd := begin == FromNow
	for {
		newest, file, err := f.catchUp(path, after)
		after = newest
		switch {
		case err == nil:
			err = f.tail(file, path, fromEnd)
			file.Close()
			if err == nil {
				after, err = afterFirst(path, after)
			}
		case errors.Is(err, fs.ErrNotExist):
			err = f.wait()
		}
		if f.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fromEnd = false
	}
}

// beginning returns the stamp of the newest file that is not looked through.
func (f *Finder) beginning(path string, begin Begin) (string, error) {
	if begin == FromRotated {
		return "", nil
	}
	names, err := sink.Rotated(path)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return sink.Stamp(names[len(names)-1]), nil
}

// afterFirst returns the stamp of the first file that was rotated after another: the one
// that was just read to its end. If the file was moved in another way, it returns the
// same stamp.
func afterFirst(path, after string) (string, error) {
	names, err := rotatedAfter(path, after)
	if err != nil || len(names) == 0 {
		return after, err
	}
	return sink.Stamp(names[0]), nil
}

// wait waits until it is time to look at a file again.
func (f *Finder) wait() error {
	if err := f.pause(); err != nil {
		return err
	}
	select {
	case <-f.ctx.Done():
	case <-time.After(f.poll):
	}
	return nil
}

// tail looks through a file as it grows, until the path is another file's.
func (f *Finder) tail(file *os.File, path string, fromEnd bool) error {
	if fromEnd {
		if _, err := file.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	l := newLines(file)
	var moved time.Time // when it was noticed
	for {
		if isMoved(file, path) {
			if moved.IsZero() {
				moved = time.Now()
			}
		} else {
			moved = time.Time{}
		}
		isLast := !moved.IsZero() && time.Since(moved) >= overlap
		if err := f.lines(path, l); err != nil {
			return err
		}
		if isLast || f.ctx.Err() != nil {
			return f.torn(path, l)
		}
		isCut, err := isCutOff(file)
		if err != nil {
			return err
		}
		if isCut {
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
			l = newLines(file)
			continue
		}
		if err := f.wait(); err != nil {
			return err
		}
	}
}

// isMoved reports whether a path now names another file than the open one. While it names
// none, the daemon has not begun another.
func isMoved(file *os.File, path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && !os.SameFile(named, opened)
}

// isCutOff reports whether a file is shorter than what was read of it.
func isCutOff(file *os.File) (bool, error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	read, err := file.Seek(0, io.SeekCurrent)
	return err == nil && info.Size() < read, err
}
