package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/parser"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// loader gathers the domains of all files of one load.
type loader struct {
	options  Options
	domains  map[string]*rules.Domain
	shared   *parser.Shared
	errs     yamlfile.Errors
	warnings []yamlfile.Warning
	// parsers are the parsers of files that could be read; those of resources only where
	// others may add to their domains.
	parsers []*parser.Parser
}

func newLoader(o Options) *loader {
	return &loader{
		options: o,
		domains: make(map[string]*rules.Domain),
		shared:  parser.NewShared(o.Lenient, o.MergeDomains),
	}
}

// file reads the text of one file.
func (l *loader) file(name string, data []byte) {
	p := l.shared.Parser(name, len(data))
	p.Read(data)
	l.parsed(p)
}

// parsed enters what a parser has read. A resource's parser is dropped unless others may
// add to its domain: there may be 100,000.
func (l *loader) parsed(p *parser.Parser) {
	p.Enter(l.domains)
	if !p.Made || l.options.MergeDomains {
		l.parsers = append(l.parsers, p)
		return
	}
	l.finishFile(p)
}

// finish does what needs all files.
func (l *loader) finish() {
	for _, p := range l.parsers {
		reload.Yield()
		l.finishFile(p)
	}
}

// finishFile does what needs the whole domain of the file.
func (l *loader) finishFile(p *parser.Parser) {
	p.Finish(l.domains)
	l.errs = append(l.errs, p.Errs...)
	if p.Made && len(l.warnings) >= maxWarnings {
		return
	}
	l.warnings = append(l.warnings, p.Warnings...)
}

// maxWarnings is roughly how many warnings about what programs made are kept, for all
// resources together: the log shows only a few.
const maxWarnings = 1000

// result returns the rules of everything that was read, or all errors.
func (l *loader) result() (*rules.Set, error) {
	l.finish()
	if len(l.errs) > 0 {
		l.errs.Sort()
		return nil, l.errs
	}
	return rules.New(l.domains, l.shared.Room, l.warnings), nil
}
