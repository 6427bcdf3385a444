package config

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

// reloads is what replacing what files say has in common, whatever they say:
// it is known of each load whether it changed anything, and an error is told
// once.
type reloads struct {
	// what is in the files: "limits".
	what, path string
	log        *slog.Logger
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

func (r *reloads) begin(what, path string, log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r.what, r.path, r.log = what, path, log
	r.show()
}

// Status returns how what is in force came to be. It does not wait for a
// reload.
func (r *reloads) Status() Status { return *r.shown.Load() }

// show is called with mu held, but by begin.
func (r *reloads) show() {
	shown := r.status
	r.shown.Store(&shown)
}

// unchanged reports whether the files with this digest are in force already,
// which is a success.
func (r *reloads) unchanged(digest [sha256.Size]byte) bool {
	if r.status.Generation == 0 || digest != r.inForce {
		return false
	}
	if r.status.LastError != nil {
		r.log.Info(r.what+": the files are again those in force", "path", r.path, "generation", r.status.Generation)
		r.status.Succeeded++
	}
	r.succeeded()
	return true
}

// replaced tells that what the files with this digest say is in force now; args
// say for the log how much it is.
func (r *reloads) replaced(digest [sha256.Size]byte, args ...any) {
	r.inForce = digest
	r.status.Generation++
	r.status.Succeeded++
	r.status.LoadedAt = time.Now()
	r.succeeded()
	r.log.Info(r.what+" loaded", append([]any{"path", r.path, "generation", r.status.Generation}, args...)...)
}

func (r *reloads) succeeded() {
	r.status.LastError, r.status.FailedAt, r.failure = nil, time.Time{}, ""
	r.status.SucceededAt = time.Now()
}

func (r *reloads) failed(err error) error {
	if err.Error() == r.failure {
		return err
	}
	r.failure = err.Error()
	r.status.Failed++
	r.status.LastError, r.status.FailedAt = err, time.Now()
	switch {
	case r.status.Generation > 0:
		r.log.Error(r.what+" not loaded, the last good ones stay in force",
			"path", r.path, "generation", r.status.Generation, "error", err)
	case r.status.Failed > 1:
		r.log.Error(r.what+" not loaded, none are in force yet", "path", r.path, "error", err)
	}
	return err
}
