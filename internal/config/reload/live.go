package reload

import (
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Status tells how what is in force came to be.
type Status struct {
	// Generation counts what was in force, one after the other; 0 means nothing
	// yet.
	Generation int
	// LoadedAt is when what is in force was loaded.
	LoadedAt time.Time
	// Failed counts the loads that failed; one that fails as the last did is
	// not counted again.
	Failed int
	// LastError is what is wrong with the files as they are now, or nil. What
	// is in force is then older than the files.
	LastError error
	// FailedAt is when LastError was first met.
	FailedAt time.Time
	// Succeeded counts the loads that put something in force, or that found the
	// files to be those in force again after a failure.
	Succeeded int
	// SucceededAt is when the files were last loaded without an error, or
	// found to be those in force.
	SucceededAt time.Time
}

// Files are some that were read, whose text is not understood yet.
type Files[T any] struct {
	// Digest tells them from others.
	Digest [sha256.Size]byte
	// Parse returns what they say, where before is in force or nil, and how much
	// that is, as attributes for the log.
	Parse func(before *T) (after *T, size []any, err error)
	// InForce, if not nil, is called when they are in force: replaced, or found
	// to be those that are.
	InForce func(replaced bool)
}

// Live holds what files say. Its methods may be called concurrently.
type Live[T any] struct {
	// what is in the files: "limits".
	what, path string
	read       func(path string) (Files[T], error)
	log        *slog.Logger
	value      atomic.Pointer[T]
	// shown is a copy of status, to be had while a reload is under way: one of
	// 100,000 rules takes seconds.
	shown atomic.Pointer[Status]

	// mu lets one reload happen at a time and guards what is below.
	mu     sync.Mutex
	status Status
	// inForce is the digest of the files that are in force.
	inForce [sha256.Size]byte
	// failure is the error that was last logged, "" after a success.
	failure string
}

// New returns a Live without a value; Reload or Watch loads it. The files, which
// are called what in the log, are at a path. log may be nil.
func New[T any](what, path string, log *slog.Logger, read func(path string) (Files[T], error)) *Live[T] {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Live[T]{what: what, path: path, log: log, read: read}
	l.show()
	return l
}

// Value returns what is in force, or nil if nothing was ever loaded.
func (l *Live[T]) Value() *T { return l.value.Load() }

// Status returns how what is in force came to be. It does not wait for a
// reload.
func (l *Live[T]) Status() Status { return *l.shown.Load() }

// Reload reads the files and puts what they say in force, all or nothing: on any
// error what was before stays. Files that did not change make no new generation.
// An error is logged, except for that of a first load, about which its caller
// has more to say.
func (l *Live[T]) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.show()
	files, err := l.read(l.path)
	if err != nil {
		return l.failed(err)
	}
	unchanged := l.unchanged(files.Digest)
	if !unchanged {
		value, size, err := files.Parse(l.value.Load())
		if err != nil {
			return l.failed(err)
		}
		l.value.Store(value)
		l.replaced(files.Digest, size)
	}
	if files.InForce != nil {
		files.InForce(!unchanged)
	}
	return nil
}

// show is called with mu held, except by New.
func (l *Live[T]) show() {
	shown := l.status
	l.shown.Store(&shown)
}

// unchanged reports whether the files with this digest are in force already,
// which is a success.
func (l *Live[T]) unchanged(digest [sha256.Size]byte) bool {
	if l.status.Generation == 0 || digest != l.inForce {
		return false
	}
	if l.status.LastError != nil {
		l.log.Info(l.what+": the files are again those in force", "path", l.path, "generation", l.status.Generation)
		l.status.Succeeded++
	}
	l.succeeded()
	return true
}

// replaced notes that what the files with this digest say is in force now.
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
	case l.status.Failed > 1:
		l.log.Error(l.what+" not loaded, none are in force yet", "path", l.path, "error", err)
	}
	return err
}
