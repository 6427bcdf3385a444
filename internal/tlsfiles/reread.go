package tlsfiles

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// youngFile is how old a file must have been when it was read for an equal
// time and size to mean equal bytes. A file system's clock ticks coarsely, and
// a second write within one tick would else be missed for ever.
const youngFile = 2 * time.Second

// rereadFiles holds a value made of a few files and makes it anew when they
// change. It needs no goroutine: get looks at the files, and is called where
// the time for that does not matter, once per handshake.
type rereadFiles[T any] struct {
	what  string // for the log: "certificate"
	paths []string
	parse func(contents [][]byte) (T, error)
	log   *slog.Logger

	mu       sync.Mutex
	value    T        // the last good one
	contents [][]byte // what it was made of
	stamps   []fileStamp
	failure  string // of the last attempt, as it was logged
}

// fileStamp is what a file looked like just before it was read.
type fileStamp struct {
	info os.FileInfo
	read time.Time
}

// newRereadFiles reads the files for the first time, when failing is an error.
func newRereadFiles[T any](what string, log *slog.Logger, parse func([][]byte) (T, error), paths ...string) (*rereadFiles[T], error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &rereadFiles[T]{what: what, paths: paths, parse: parse, log: log}
	if _, err := r.load(); err != nil {
		return nil, err
	}
	return r, nil
}

// get returns the value that the files hold now, or, where they are broken or
// only half written yet, the last good one.
func (r *rereadFiles[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed() {
		return r.value
	}
	switch replaced, err := r.load(); {
	case err != nil:
		// Once per failure: every handshake comes by here until it is mended.
		if failure := err.Error(); failure != r.failure {
			r.failure = failure
			r.log.Error("the new "+r.what+" can't be used; the last good one stays", "files", r.paths, "error", err)
		}
	case replaced || r.failure != "":
		r.failure = ""
		r.log.Info("read the "+r.what+" again", "files", r.paths)
	}
	return r.value
}

func (r *rereadFiles[T]) changed() bool {
	for i, path := range r.paths {
		old := r.stamps[i]
		info, err := os.Stat(path)
		switch {
		case err != nil || old.info == nil:
			return true
		case !os.SameFile(info, old.info), !info.ModTime().Equal(old.info.ModTime()), info.Size() != old.info.Size():
			return true
		case old.read.Sub(info.ModTime()) < youngFile:
			return true
		}
	}
	return false
}

// load reads the files, and replaces the value if their bytes are new and
// good.
func (r *rereadFiles[T]) load() (replaced bool, err error) {
	contents := make([][]byte, len(r.paths))
	stamps := make([]fileStamp, len(r.paths))
	r.stamps = stamps
	for i, path := range r.paths {
		// The stamp comes first: a write between the two then shows next time.
		read := time.Now()
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if contents[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
		stamps[i] = fileStamp{info, read}
	}
	if r.contents != nil && slices.EqualFunc(contents, r.contents, bytes.Equal) {
		return false, nil
	}
	value, err := r.parse(contents)
	if err != nil {
		return false, err
	}
	r.value, r.contents = value, contents
	return true, nil
}
