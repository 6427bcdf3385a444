package limitsfile

import (
	"crypto/sha256"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Resource is a domain that comes in a message instead of a file.
type Resource struct {
	// Name identifies it in errors, in place of a file name.
	Name string
	// Text is the limits file that says the same; its lines mean nothing.
	Text []byte
	// Err says why the resource is invalid, or is nil.
	Err error
}

// FedLive is a Live that Feed loads.
type FedLive struct {
	*rules.Live
	options Options
}

// NewFedLive returns a FedLive without rules. from says where they come from, for the
// log, which may be nil.
func (o Options) NewFedLive(from string, log *slog.Logger) *FedLive {
	return &FedLive{Live: &rules.Live{Live: reload.New[rules.Set]("limits", from, log, nil)}, options: o.withClock()}
}

// Feed puts the rules of resources in force, all or nothing: on any error the previous
// rules stay. Resources with the digest of those in force change nothing. Errors in
// resources are yamlfile.Errors, in the order of the names.
func (l *FedLive) Feed(digest [sha256.Size]byte, resources []Resource) error {
	return l.Replace(l.options.files(digest, func(loader *loader) (*rules.Set, []Text, error) { return loader.resources(resources) }, "resources", len(resources)))
}

// resources reads all of them. It returns their texts where they are announced.
func (l *loader) resources(list []Resource) (rules *rules.Set, texts []Text, err error) {
	for _, r := range list {
		reload.Yield()
		if r.Err != nil {
			l.errs = append(l.errs, yamlfile.Error{File: r.Name, Found: r.Err.Error()})
			continue
		}
		if l.options.Announce != nil {
			texts = append(texts, Text{Name: r.Name, Text: string(r.Text)})
		}
		p := l.shared.parser(r.Name, len(r.Text))
		p.readMade(r.Text)
		l.parsed(p)
	}
	rules, err = l.result()
	return rules, texts, err
}
