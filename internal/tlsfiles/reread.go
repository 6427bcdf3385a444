package tlsfiles

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// youngFile is how old a file must be when it is read for an equal time and size to
// mean equal bytes later. File systems count time coarsely, so a second write
// within one tick would be missed for ever otherwise.
const youngFile = 2 * time.Second

// rereadFiles holds a value made from a few files, and makes a new one when they change.
// It needs no goroutine: get looks at the files, once a handshake, which takes much
// longer.
type rereadFiles[T any] struct {
	what  string // for the log: "certificate"
	paths []string
	parse func(contents [][]byte) (T, error)
	log   *slog.Logger

	mu       sync.Mutex
	value    T        // the last good one
	contents [][]byte // of the files that value was made from
	stamps   []fileStamp
	failure  string // the error of the last attempt, as it was logged; "" for none
}

// fileStamp is the state of a file just before it was read.
type fileStamp struct {
	info os.FileInfo
	read time.Time
}

// newRereadFiles reads the files for the first time. Here, unlike later, a failure
// is an error. what names the value in the log.
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

// get returns the value that the files hold now, or the last good one if they are
// broken or half written.
func (r *rereadFiles[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed() {
		return r.value
	}
	switch replaced, err := r.load(); {
	case err != nil:
		// Each failure is logged once, since every handshake comes here.
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

// changed reports whether the files may have changed since they were read.
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

// load reads the files, and replaces the value if their bytes are new and good.
func (r *rereadFiles[T]) load() (replaced bool, err error) {
	contents := make([][]byte, len(r.paths))
	stamps := make([]fileStamp, len(r.paths))
	r.stamps = stamps
	for i, path := range r.paths {
		// The stamp comes before the bytes, so that the next look notices a write
		// in between.
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
