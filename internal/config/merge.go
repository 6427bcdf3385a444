package config

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// outermost is where one of a domain's outermost descriptors stands.
type outermost struct {
	parser *fileParser
	yamlfile.Position
}

// lineOf returns file:line, or the name alone of what has no lines.
func lineOf(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// enter adds the domain of a file to the rules.
func (l *loader) enter(p *fileParser) {
	if p.d == nil || p.d.Name == "" {
		return
	}
	first := l.rules.domains[p.d.Name]
	switch {
	case first == nil:
		l.rules.domains[p.d.Name] = p.d
	case l.options.MergeDomains:
		p.merge(first)
	default:
		allowed := "each domain in one file, unless limits.merge_domains is true"
		if p.Made {
			allowed = "each domain once, unless limits.merge_domains is true"
		}
		p.BadAt(p.nameAt, fmt.Sprintf("the domain %s again, which is also in %s", yamlfile.Quote(p.d.Name), lineOf(first.File, first.Line)), allowed)
	}
}

// merge adds the file's part of a domain to those of the files before. Patterns
// are tried in the order of the files.
func (p *fileParser) merge(d *Domain) {
	switch {
	case d.HashTag == "":
		d.HashTag = p.d.HashTag
	case p.d.HashTag != "" && p.d.HashTag != d.HashTag:
		p.BadAt(p.tagAt, fmt.Sprintf("the hash_tag %s, but the domain has %s in another file", yamlfile.Quote(p.d.HashTag), yamlfile.Quote(d.HashTag)), "the same hash_tag in all files of a domain, or none")
	}
	switch {
	case d.Unmatched == UnmatchedDefault:
		d.Unmatched = p.d.Unmatched
	case p.d.Unmatched != UnmatchedDefault && p.d.Unmatched != d.Unmatched:
		p.BadAt(p.unmatchedAt, fmt.Sprintf("unmatched: %s, but the domain has %s in another file", p.d.Unmatched, d.Unmatched), "the same unmatched in all files of a domain, or none")
	}
	d.files = append(d.files, p.File)
	for n := range p.d.root.below {
		n.file = int32(len(d.files))
	}
	for _, n := range p.d.root.exact {
		p.refuseSecond(n, d.root.addExact(n))
	}
	for i := range p.d.root.keys {
		from := &p.d.root.keys[i]
		to := d.root.addKey(from.key)
		known := make(map[bucket.Entry]*node, len(to.patterns.nodes))
		for _, n := range to.patterns.nodes {
			known[n.entry] = n
		}
		for _, n := range from.patterns.nodes {
			first := known[n.entry]
			if first == nil {
				to.patterns.add(n)
			}
			p.refuseSecond(n, first)
		}
		if from.bare != nil {
			p.refuseSecond(from.bare, d.root.addBare(from.bare))
		}
	}
	d.rules = append(d.rules, p.d.rules...)
	*p.d.root = node{} // its descriptors still point up to it
}

// refuseSecond reports a descriptor if a file before has one with the same entry,
// which is first. first may be nil.
func (p *fileParser) refuseSecond(n, first *node) {
	if first == nil {
		return
	}
	here, there := p.loader.outermost[n], p.loader.outermost[first]
	p.BadAt(here.Position, fmt.Sprintf("%s again, the first is in %s", entryText(n.entry), lineOf(there.parser.File, there.Line)),
		"each key with each value once in a domain")
}
