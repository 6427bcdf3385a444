package reload

import (
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Status describes how the value in force came about.
type Status struct {
	// Generation counts the values that have been in force, one after the other; 0 means
	// none yet.
	Generation int
	// LoadedAt is when the value in force was loaded.
	LoadedAt time.Time
	// Failed counts the failed loads; one that fails the same way as the last is not
	// counted again.
	Failed int
	// LastError is what is wrong with the files as they are now, or nil. If not nil, the
	// value in force is older than the files.
	LastError error
	// FailedAt is when LastError first occurred.
	FailedAt time.Time
	// Succeeded counts the loads that put a value in force, or that after a failure found
	// that the files were the ones in force.
	Succeeded int
	// SucceededAt is when the files were last loaded without an error, or were found to
	// be the ones in force.
	SucceededAt time.Time
}

// Files are files that were read but not parsed yet.
type Files[T any] struct {
	// Digest identifies them.
	Digest [sha256.Size]byte
	// Parse returns their value, and its size as attributes for the log. before
	// is the value in force, or nil.
	Parse func(before *T) (after *T, size []any, err error)
	// Sparing, if not nil, calls the function that parses them and puts them in force.
	// When that returns, what was in force before is garbage.
	Sparing func(replace func())
	// InForce, if not nil, is called once their value is in force, with the log of the
	// Live.
	InForce func(log *slog.Logger, value *T)
}

// Live holds the value of files. Its methods may be called concurrently.
type Live[T any] struct {
	// what names the value in the log: "limits".
	what, path string
	read       func(path string) (Files[T], error)
	log        *slog.Logger
	value      atomic.Pointer[T]
	// shown is a copy of status that can be read during a reload: one of 100,000 rules
	// takes seconds.
	shown atomic.Pointer[Status]

	// mu admits one reload at a time and guards the fields below.
	mu     sync.Mutex
	status Status
	// inForce is the digest of the files in force.
	inForce [sha256.Size]byte
	// failure is the last error logged, "" after a success.
	failure string
}

// New returns a Live without a value; Reload or Watch loads it from the files at a path.
// what names the value in the log: "limits". log may be nil. If Replace feeds it, read is
// nil, and path says in the log where the content comes from.
func New[T any](what, path string, log *slog.Logger, read func(path string) (Files[T], error)) *Live[T] {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Live[T]{what: what, path: path, log: log, read: read}
	l.show()
	return l
}

// Value returns the value in force, or nil if none was ever loaded.
func (l *Live[T]) Value() *T { return l.value.Load() }

// Status returns how the value in force came about. It does not wait for a reload.
func (l *Live[T]) Status() Status { return *l.shown.Load() }

// Reload reads the files and puts their value in force, all or nothing: on any error the
// old value stays. Unchanged files make no new generation. An error is logged, except on
// the first load of files: its caller has more to say about it.
func (l *Live[T]) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.show()
	files, err := l.read(l.path)
	if err != nil {
		return l.failed(err)
	}
	return l.putInForce(files)
}

// Replace does what Reload does, with content that did not come from the path: a Live
// made without a function to read is fed only by it.
func (l *Live[T]) Replace(content Files[T]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.show()
	return l.putInForce(content)
}

// putInForce is called with mu held.
func (l *Live[T]) putInForce(files Files[T]) error {
	if l.unchanged(files.Digest) {
		return nil
	}
	var size []any
	var err error
	replace := func() {
		var value *T
		if value, size, err = files.Parse(l.value.Load()); err == nil {
			l.value.Store(value)
		}
	}
	if files.Sparing != nil {
		files.Sparing(replace)
	} else {
		replace()
	}
	if err != nil {
		return l.failed(err)
	}
	l.replaced(files.Digest, size)
	if files.InForce != nil {
		files.InForce(l.log, l.value.Load())
	}
	return nil
}

// show is called with mu held, except by New.
func (l *Live[T]) show() {
	shown := l.status
	l.shown.Store(&shown)
}

// unchanged reports whether the files with this digest are already in force, which is a
// success.
func (l *Live[T]) unchanged(digest [sha256.Size]byte) bool {
	if l.status.Generation == 0 || digest != l.inForce {
		return false
	}
	if l.status.LastError != nil {
		l.log.Info(l.what+": they are again those in force", "path", l.path, "generation", l.status.Generation)
		l.status.Succeeded++
	}
	l.succeeded()
	return true
}

// replaced records that the value of the files with this digest is now in force.
func (l *Live[T]) replaced(digest [sha256.Size]byte, size []any) {
	l.inForce = digest
	l.status.Generation++
	l.status.Succeeded++
	l.status.LoadedAt = time.Now()
	l.succeeded()
	l.log.Info(l.what+" loaded", append([]any{"path", l.path, "generation", l.status.Generation}, size...)...)
}

func (l *Live[T]) succeeded() {
	l.status.LastError, l.status.FailedAt, l.failure = nil, time.Time{}, ""
	l.status.SucceededAt = time.Now()
}

func (l *Live[T]) failed(err error) error {
	if err.Error() == l.failure {
		return err
	}
	l.failure = err.Error()
	l.status.Failed++
	l.status.LastError, l.status.FailedAt = err, time.Now()
	switch {
	case l.status.Generation > 0:
		l.log.Error(l.what+" not loaded, the last good ones stay in force",
			"path", l.path, "generation", l.status.Generation, "error", err)
	case l.status.Failed > 1 || l.read == nil:
		l.log.Error(l.what+" not loaded, none are in force yet", "path", l.path, "error", err)
	}
	return err
}
