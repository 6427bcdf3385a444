package config

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// loader gathers the domains of all files of one load.
type loader struct {
	options  LoadOptions
	rules    *Rules
	errs     yamlfile.Errors
	warnings []yamlfile.Warning
	// parsers are those of the files that could be read; of resources only where
	// others may say more of their domains.
	parsers []*fileParser
	// limits holds one Limit for all places with the same numbers.
	limits map[bucket.Spec]*bucket.Limit
	// metadata and replaces hold one copy of each, by their canonical texts.
	metadata map[string]map[string]any
	replaces map[string][][]string
	// periods holds those that were read.
	periods map[string]time.Duration
	// strings holds one copy of each key.
	strings map[string]string
	// tops are where the outermost descriptors of domains stand.
	outermost map[*node]outermost
	// pieceSize is how many bytes of a large file are parsed at a time.
	pieceSize int
}

func newLoader(o LoadOptions) *loader {
	return &loader{
		options:   o,
		rules:     &Rules{domains: make(map[string]*Domain), room: newValueRoom()},
		limits:    make(map[bucket.Spec]*bucket.Limit),
		metadata:  make(map[string]map[string]any),
		replaces:  make(map[string][][]string),
		periods:   make(map[string]time.Duration),
		strings:   make(map[string]string),
		outermost: make(map[*node]outermost),
		pieceSize: pieceSize,
	}
}

// file reads the text of one file.
func (l *loader) file(name string, data []byte) {
	p := l.parser(name, len(data))
	text, err := p.Utf8(data)
	if err != nil {
		err.File = name
		l.errs = append(l.errs, *err)
		return
	}
	told := slices.Clone(p.Warnings)
	if !p.inPieces(text) {
		p = l.parser(name, len(data))
		p.Warnings = told
		p.whole(text)
	}
	l.parsed(p)
}

// parsed enters what a parser has read. That of a resource is let go of where no other
// says more of its domain: there may be 100,000.
func (l *loader) parsed(p *fileParser) {
	l.enter(p)
	if !p.Made || l.options.MergeDomains {
		l.parsers = append(l.parsers, p)
		return
	}
	if p.d != nil {
		p.d.root.seal()
	}
	l.finishFile(p)
}

func (l *loader) parser(file string, size int) *fileParser {
	w := yamlfile.NewReader(file, size, domainLevel, descriptorLevel, limitLevel)
	w.Lenient = l.options.Lenient
	return &fileParser{Reader: w, loader: l}
}

// yield lets requests that wait go first. Go would let what loads run for 10 ms at a
// time, which they would feel where there is one processor.
func yield() { runtime.Gosched() }

// finish does what needs all files.
func (l *loader) finish() {
	if len(l.parsers) > 0 {
		for _, d := range l.rules.domains {
			d.root.seal()
		}
	}
	for _, p := range l.parsers {
		yield()
		l.finishFile(p)
	}
}

// finishFile does what needs all of the file's domain.
func (l *loader) finishFile(p *fileParser) {
	if len(p.Errs) == 0 && p.d != nil && l.rules.domains[p.d.Name] != nil {
		p.warnDomain(l.rules.domains[p.d.Name])
	}
	l.errs = append(l.errs, p.Errs...)
	if p.Made && len(l.warnings) >= maxWarnings {
		return
	}
	l.warnings = append(l.warnings, p.Warnings...)
}

// maxWarnings is about how many warnings of what programs made are kept, of all
// resources together: the log shows a few of them.
const maxWarnings = 1000

// result returns the rules of all that was read, or all errors.
func (l *loader) result() (*Rules, error) {
	l.finish()
	if len(l.errs) > 0 {
		l.errs.Sort()
		return nil, l.errs
	}
	r := l.rules
	for _, d := range r.domains {
		r.sorted = append(r.sorted, d)
	}
	slices.SortFunc(r.sorted, func(a, b *Domain) int { return strings.Compare(a.Name, b.Name) })
	r.fingerprint = r.computeFingerprint()
	r.warnings = l.warnings
	yamlfile.SortWarnings(r.warnings)
	return r, nil
}

// share makes a rule use the metadata and the replaces of another where they are
// equal.
func (l *loader) share(r *Rule) {
	var f fingerprinter
	if r.Metadata != nil {
		f.metadata(r.Metadata)
		r.Metadata = oneOf(l.metadata, f.buf, r.Metadata)
	}
	if r.Replaces != nil {
		f.buf = f.buf[:0]
		f.replaces(r.Replaces)
		r.Replaces = oneOf(l.replaces, f.buf, r.Replaces)
	}
}

// oneOf returns the first value that was given with a text.
func oneOf[T any](known map[string]T, text []byte, value T) T {
	if first, ok := known[string(text)]; ok {
		return first
	}
	known[string(text)] = value
	return value
}
