package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// loader gathers the domains of all files of one load.
type loader struct {
	options  Options
	domains  map[string]*rules.Domain
	shared   *shared
	errs     yamlfile.Errors
	warnings []yamlfile.Warning
	// parsers are the parsers of the files.
	parsers []*parser
}

func newLoader(o Options) *loader {
	return &loader{
		options: o,
		domains: make(map[string]*rules.Domain),
		shared:  newShared(o.Lenient, o.MergeDomains),
	}
}

// file reads the text of one file.
func (l *loader) file(name string, data []byte) {
	p := l.shared.parser(name, len(data))
	p.read(data)
	l.parsed(p)
}

// parsed enters what a parser has read.
func (l *loader) parsed(p *parser) {
	p.enter(l.domains)
	l.parsers = append(l.parsers, p)
}

// result returns the rules of everything that was read, or all errors.
func (l *loader) result() (*rules.Set, error) {
	for _, p := range l.parsers {
		reload.Yield()
		p.finish(l.domains)
		l.errs = append(l.errs, p.Errs...)
		l.warnings = append(l.warnings, p.Warnings...)
	}
	if len(l.errs) > 0 {
		l.errs.Sort()
		return nil, l.errs
	}
	return rules.New(l.domains, l.shared.room, l.warnings), nil
}
