package limitsfile

import (
	"crypto/sha256"
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// NewLive returns a Live without rules; Reload or Watch loads them. log may be nil.
func NewLive(path string, log *slog.Logger) *rules.Live { return Options{}.NewLive(path, log) }

// NewLive is the function NewLive, with options.
func (o Options) NewLive(path string, log *slog.Logger) *rules.Live {
	o = o.withClock()
	return &rules.Live{Live: reload.New("limits", path, log, func(path string) (reload.Files[rules.Set], error) {
		src, err := readSource(nil, path)
		if err != nil {
			return reload.Files[rules.Set]{}, err
		}
		return o.files(src.digest(), func(l *loader) (after *rules.Set, texts []Text, err error) {
			if o.Announce != nil {
				texts = src.texts() // which rules drops
			}
			after, err = src.rules(l)
			return after, texts, err
		}, "files", len(src.files)), nil
	})}
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

// files returns what a Live loads: the rules that read reads, with attributes for the log
// after the given ones. Unchanged rules continue.
func (o Options) files(digest [sha256.Size]byte, read func(*loader) (*rules.Set, []Text, error), given ...any) reload.Files[rules.Set] {
	return reload.Files[rules.Set]{
		Digest: digest,
		Parse: func(before *rules.Set) (after *rules.Set, size []any, err error) {
			after, texts, err := read(newLoader(o))
			if err != nil {
				return nil, nil, err
			}
			after.Follow(before, o.Clock())
			if o.Announce != nil {
				o.Announce(after, texts)
			}
			return after, append(given, "domains", len(after.Domains()), "rules", after.Count()), nil
		},
		Sparing: o.Sparing,
		InForce: logWarnings,
	}
}

func logWarnings(log *slog.Logger, r *rules.Set) {
	const maxShown = 20
	warnings := r.Warnings()
	for i, w := range warnings {
		if i == maxShown {
			log.Warn("limits have more warnings", "not_shown", len(warnings)-maxShown)
			return
		}
		log.Warn("limits: " + w.String())
	}
}
