package config

import (
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Live holds the rules in force and replaces them when the files change. Its
// methods may be called concurrently.
type Live struct {
	path    string
	options LoadOptions
	log     *slog.Logger
	rules   atomic.Pointer[Rules]
	// shown is a copy of status, to be had while a reload is under way: one of
	// 100,000 rules takes seconds.
	shown atomic.Pointer[Status]

	// mu lets one reload happen at a time and guards what is below.
	mu     sync.Mutex
	status Status
	// inForce is the digest of the files that the rules are from.
	inForce [sha256.Size]byte
	// passedOver are the files that the log was told are passed over.
	passedOver []string
	// failure is the error that was last logged, "" after a success.
	failure string
}

// Status tells how the rules in force came to be.
type Status struct {
	// Generation counts the sets of rules that were in force; 0 means none yet.
	Generation int
	// LoadedAt is when the rules in force were loaded.
	LoadedAt time.Time
	// Failed counts the loads that failed; one that fails as the last did is
	// not counted again.
	Failed int
	// LastError is what is wrong with the files as they are now, or nil. The
	// rules in force are then older than the files.
	LastError error
	// FailedAt is when LastError was first met.
	FailedAt time.Time
	// Succeeded counts the loads that put rules in force, or that found the
	// files to be those in force again after a failure.
	Succeeded int
	// SucceededAt is when the files were last loaded without an error, or
	// found to be those in force.
	SucceededAt time.Time
}

// NewLive returns a Live without rules; Reload or Watch loads them.
func NewLive(path string, log *slog.Logger) *Live { return LoadOptions{}.NewLive(path, log) }

// NewLive is the function of that name, with options.
func (o LoadOptions) NewLive(path string, log *slog.Logger) *Live {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Live{path: path, options: o, log: log}
	l.show()
	return l
}

// Rules returns the rules in force, or nil if none were ever loaded. A request
// asks once and keeps what it got.
func (l *Live) Rules() *Rules { return l.rules.Load() }

// Status returns how the rules in force came to be. It does not wait for a
// reload.
func (l *Live) Status() Status { return *l.shown.Load() }

// show is called with mu held, but by NewLive.
func (l *Live) show() {
	shown := l.status
	l.shown.Store(&shown)
}

// Reload reads the files and puts their rules in force, all or none: on any
// error those before stay. Files that did not change make no new generation.
// An error is logged, but for that of a first load, about which its caller has
// more to say.
func (l *Live) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.show()
	src, err := readSource(l.path)
	if err != nil {
		return l.failed(err)
	}
	digest := src.digest()
	if l.status.Generation > 0 && digest == l.inForce {
		if l.status.LastError != nil {
			l.log.Info("limits files are again those in force", "path", l.path, "generation", l.status.Generation)
			l.status.Succeeded++
		}
		l.succeeded()
		l.tellPassedOver(src.passedOver)
		return nil
	}
	rules, err := src.rules(newLoader(l.options))
	if err != nil {
		return l.failed(err)
	}
	rules.keepTallies(l.rules.Load())
	l.inForce = digest
	l.rules.Store(rules)
	l.status.Generation++
	l.status.Succeeded++
	l.status.LoadedAt = time.Now()
	l.succeeded()
	l.log.Info("limits loaded", "path", l.path, "generation", l.status.Generation,
		"files", len(src.files), "domains", len(rules.sorted), "rules", rules.Count())
	l.logWarnings(rules.warnings)
	l.passedOver = src.passedOver
	return nil
}

// tellPassedOver warns of the files that came since and are passed over.
func (l *Live) tellPassedOver(names []string) {
	told := make(map[string]bool, len(l.passedOver))
	for _, name := range l.passedOver {
		told[name] = true
	}
	var came []Warning
	for _, name := range names {
		if !told[name] {
			came = append(came, passedOverWarning(name))
		}
	}
	l.passedOver = names
	l.logWarnings(came)
}

func (l *Live) logWarnings(warnings []Warning) {
	const most = 20
	for i, w := range warnings {
		if i == most {
			l.log.Warn("limits have more warnings", "not_shown", len(warnings)-most)
			return
		}
		l.log.Warn("limits: " + w.String())
	}
}

func (l *Live) succeeded() {
	l.status.LastError, l.status.FailedAt, l.failure = nil, time.Time{}, ""
	l.status.SucceededAt = time.Now()
}

func (l *Live) failed(err error) error {
	if err.Error() == l.failure {
		return err
	}
	l.failure = err.Error()
	l.status.Failed++
	l.status.LastError, l.status.FailedAt = err, time.Now()
	switch {
	case l.status.Generation > 0:
		l.log.Error("limits not loaded, the last good ones stay in force",
			"path", l.path, "generation", l.status.Generation, "error", err)
	case l.status.Failed > 1:
		l.log.Error("limits not loaded, none are in force yet", "path", l.path, "error", err)
	}
	return err
}
