package config

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Live holds the rules in force and replaces them when the files change. Its
// methods may be called concurrently. A request asks once for the rules and
// keeps what it got.
type Live struct {
	*reload.Live[Rules]
	options LoadOptions
	// passedOver are the files about which a warning was logged. Only reloads
	// use it, and there is one at a time.
	passedOver []string
}

// NewLive returns a Live without rules; Reload or Watch loads them. log may be nil.
func NewLive(path string, log *slog.Logger) *Live { return LoadOptions{}.NewLive(path, log) }

// NewLive is the function of that name, with options.
func (o LoadOptions) NewLive(path string, log *slog.Logger) *Live {
	l := o.newLive()
	l.Live = reload.New("limits", path, log, l.read)
	return l
}

func (o LoadOptions) newLive() *Live {
	if o.Clock == nil {
		start := time.Now()
		epoch := start.UnixMicro()
		o.Clock = func() int64 { return epoch + time.Since(start).Microseconds() }
	}
	return &Live{options: o}
}

// Rules returns the rules in force, or nil if none were ever loaded.
func (l *Live) Rules() *Rules { return l.Value() }

// read reads the files at a path.
func (l *Live) read(path string) (reload.Files[Rules], error) {
	src, err := readSource(nil, path)
	if err != nil {
		return reload.Files[Rules]{}, err
	}
	return reload.Files[Rules]{
		Digest:  src.digest(),
		Parse:   func(before *Rules) (*Rules, []any, error) { return l.parse(src, before) },
		Sparing: l.options.Sparing,
		InForce: func(log *slog.Logger, replaced bool) {
			if replaced {
				l.passedOver = src.passedOver
				logWarnings(log, l.Rules().warnings)
			} else {
				l.tellPassedOver(log, src.passedOver)
			}
		},
	}, nil
}

// parse returns the rules of the files. Rules that are as before go on.
func (l *Live) parse(src *source, before *Rules) (rules *Rules, size []any, err error) {
	var texts []Text
	if l.options.Announce != nil {
		texts = src.texts() // which rules drops
	}
	return l.load(before, func(loader *loader) (*Rules, []Text, error) {
		rules, err := src.rules(loader)
		return rules, texts, err
	}, "files", len(src.files))
}

// load returns the rules that read reads, with attributes for the log behind those
// given. Rules that are as before go on.
func (l *Live) load(before *Rules, read func(*loader) (*Rules, []Text, error), given ...any) (rules *Rules, size []any, err error) {
	rules, texts, err := read(newLoader(l.options))
	if err != nil {
		return nil, nil, err
	}
	rules.follow(before, l.options.Clock())
	if l.options.Announce != nil {
		l.options.Announce(rules, texts)
	}
	return rules, append(given, "domains", len(rules.sorted), "rules", rules.Count()), nil
}

// tellPassedOver warns of files that are passed over and were not there before.
func (l *Live) tellPassedOver(log *slog.Logger, names []string) {
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
	logWarnings(log, came)
}

func logWarnings(log *slog.Logger, warnings []yamlfile.Warning) {
	const most = 20
	for i, w := range warnings {
		if i == most {
			log.Warn("limits have more warnings", "not_shown", len(warnings)-most)
			return
		}
		log.Warn("limits: " + w.String())
	}
}
