package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// late is a file that is created once there is something to keep, so that a daemon to
// which nobody assigns anything needs no place to write.
type late struct {
	path string
	max  int // records

	file atomic.Pointer[file] // nil before the first change
}

// openLate returns the keeper for a path: its file, if it exists.
func openLate(path string, maxRecords int) (keeper, error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return openFile(path, maxRecords)
	}
	return &late{path: path, max: maxRecords}, nil
}

// lacksPlace returns why the file could not be created now, or nil. It creates nothing.
func (l *late) lacksPlace() error {
	folder := filepath.Dir(l.path)
	info, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(folder) != folder {
		folder = filepath.Dir(folder) // make creates what is below
		info, err = os.Stat(folder)
	}
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err == nil {
		err = mayWrite(folder)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return nil
}

func (l *late) load(func(*assign.Assignment) error) (uint64, error) { return 0, nil }

func (l *late) keep(c *commit) error {
	f := l.file.Load()
	if f == nil {
		var err error
		if f, err = l.make(); err != nil {
			return fmt.Errorf("the file %s cannot be made, so %w (setting assignments.path): %w", l.path, assign.ErrNothingChanged, err)
		}
		l.file.Store(f)
	}
	return f.keep(c)
}

// make creates the file. If it exists by now, it belongs to another daemon, whose
// assignments this one does not have.
func (l *late) make() (*file, error) {
	if _, err := os.Stat(l.path); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errors.New("another daemon has made it"), err)
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil, err
	}
	return openFile(l.path, l.max)
}

func (l *late) records(before uint64, each func(uint64, assign.Record) bool) error {
	if f := l.file.Load(); f != nil {
		return f.records(before, each)
	}
	return nil
}

func (l *late) close() error {
	if f := l.file.Load(); f != nil {
		return f.close()
	}
	return nil
}
