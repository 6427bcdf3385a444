package limitsfile

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// NewLive returns a Live without rules; Reload or Watch loads them. log may be nil.
func NewLive(path string, log *slog.Logger) *rules.Live { return Options{}.NewLive(path, log) }

// NewLive is the function NewLive, with options.
func (o Options) NewLive(path string, log *slog.Logger) *rules.Live {
	w := &watched{options: o.withClock()}
	w.live = &rules.Live{Live: reload.New("limits", path, log, w.read)}
	return w.live
}

// withClock returns the options with a clock.
func (o Options) withClock() Options {
	if o.Clock == nil {
		start := time.Now()
		epoch := start.UnixMicro()
		o.Clock = func() int64 { return epoch + time.Since(start).Microseconds() }
	}
	return o
}

// watched holds the files of a Live.
type watched struct {
	live    *rules.Live
	options Options
	// passedOver are the files already warned about. Only reloads use it, one at a time.
	passedOver []string
}

// read reads the files at a path.
func (w *watched) read(path string) (reload.Files[rules.Set], error) {
	src, err := readSource(nil, path)
	if err != nil {
		return reload.Files[rules.Set]{}, err
	}
	return reload.Files[rules.Set]{
		Digest:  src.digest(),
		Parse:   func(before *rules.Set) (*rules.Set, []any, error) { return w.parse(src, before) },
		Sparing: w.options.Sparing,
		InForce: func(log *slog.Logger, replaced bool) {
			if replaced {
				w.passedOver = src.passedOver
				logWarnings(log, w.live.Rules().Warnings())
			} else {
				w.warnPassedOver(log, src.passedOver)
			}
		},
	}, nil
}

// parse returns the rules of the files. Unchanged rules continue.
func (w *watched) parse(src *source, before *rules.Set) (after *rules.Set, size []any, err error) {
	var texts []Text
	if w.options.Announce != nil {
		texts = src.texts() // which rules drops
	}
	return w.options.load(before, func(loader *loader) (*rules.Set, []Text, error) {
		after, err := src.rules(loader)
		return after, texts, err
	}, "files", len(src.files))
}

// load returns the rules that read reads, with attributes for the log after the given
// ones. Unchanged rules continue.
func (o Options) load(before *rules.Set, read func(*loader) (*rules.Set, []Text, error), given ...any) (after *rules.Set, size []any, err error) {
	after, texts, err := read(newLoader(o))
	if err != nil {
		return nil, nil, err
	}
	after.Follow(before, o.Clock())
	if o.Announce != nil {
		o.Announce(after, texts)
	}
	return after, append(given, "domains", len(after.Domains()), "rules", after.Count()), nil
}

// warnPassedOver warns of files that are newly passed over.
func (w *watched) warnPassedOver(log *slog.Logger, names []string) {
	warned := make(map[string]bool, len(w.passedOver))
	for _, name := range w.passedOver {
		warned[name] = true
	}
	var added []yamlfile.Warning
	for _, name := range names {
		if !warned[name] {
			added = append(added, passedOverWarning(name))
		}
	}
	w.passedOver = names
	logWarnings(log, added)
}

func logWarnings(log *slog.Logger, warnings []yamlfile.Warning) {
	const maxShown = 20
	for i, w := range warnings {
		if i == maxShown {
			log.Warn("limits have more warnings", "not_shown", len(warnings)-maxShown)
			return
		}
		log.Warn("limits: " + w.String())
	}
}
