package config

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Live holds the rules in force and replaces them when the files change. Its
// methods may be called concurrently.
type Live struct {
	reloads
	options LoadOptions
	rules   atomic.Pointer[Rules]
	// passedOver are the files that the log was told are passed over; mu guards
	// it.
	passedOver []string
}

// NewLive returns a Live without rules; Reload or Watch loads them.
func NewLive(path string, log *slog.Logger) *Live { return LoadOptions{}.NewLive(path, log) }

// NewLive is the function of that name, with options.
func (o LoadOptions) NewLive(path string, log *slog.Logger) *Live {
	if o.Clock == nil {
		start := time.Now()
		epoch := start.UnixMicro()
		o.Clock = func() int64 { return epoch + time.Since(start).Microseconds() }
	}
	l := &Live{options: o}
	l.begin("limits", path, log)
	return l
}

// Rules returns the rules in force, or nil if none were ever loaded. A request
// asks once and keeps what it got.
func (l *Live) Rules() *Rules { return l.rules.Load() }

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
	if l.unchanged(digest) {
		l.tellPassedOver(src.passedOver)
		return nil
	}
	var rules *Rules
	load := func() { rules, err = src.rules(newLoader(l.options)) }
	if l.options.Sparing != nil {
		l.options.Sparing(load)
	} else {
		load()
	}
	if err != nil {
		return l.failed(err)
	}
	rules.follow(l.rules.Load(), l.options.Clock())
	l.rules.Store(rules)
	l.replaced(digest,
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
	var came []yamlfile.Warning
	for _, name := range names {
		if !told[name] {
			came = append(came, passedOverWarning(name))
		}
	}
	l.passedOver = names
	l.logWarnings(came)
}

func (l *Live) logWarnings(warnings []yamlfile.Warning) {
	const most = 20
	for i, w := range warnings {
		if i == most {
			l.log.Warn("limits have more warnings", "not_shown", len(warnings)-most)
			return
		}
		l.log.Warn("limits: " + w.String())
	}
}
