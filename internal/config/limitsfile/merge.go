package limitsfile

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// enter adds the domain of the file to those of the earlier files.
func (p *parser) enter(domains map[string]*rules.Domain) {
	if p.d == nil || p.d.Name == "" {
		return
	}
	first := domains[p.d.Name]
	switch {
	case first == nil:
		domains[p.d.Name] = p.d
		p.refuseTagOfHolder(p.d.HashTag, p.d.Rules())
	case p.shared.merges:
		p.merge(first)
		p.refuseTagOfHolder(first.HashTag, first.Rules())
	default:
		allowed := "each domain in one file, unless limits.merge_domains is true"
		if p.Made {
			allowed = "each domain once, unless limits.merge_domains is true"
		}
		p.BadAt(p.nameAt, fmt.Sprintf("the domain %s again, which is also in %s", yamlfile.Quote(p.d.Name), yamlfile.FileLine(first.File, first.Line)), allowed)
	}
}

// merge adds the file's part of a domain to those of the earlier files. Patterns are
// tried in the order of the files.
func (p *parser) merge(d *rules.Domain) {
	switch {
	case d.HashTag == "":
		d.HashTag = p.d.HashTag
	case p.d.HashTag != "" && p.d.HashTag != d.HashTag:
		p.BadAt(p.tagAt, fmt.Sprintf("the hash_tag %s, but the domain has %s in another file", yamlfile.Quote(p.d.HashTag), yamlfile.Quote(d.HashTag)), "the same hash_tag in all files of a domain, or none")
	}
	switch {
	case d.Unmatched == rules.UnmatchedDefault:
		d.Unmatched = p.d.Unmatched
	case p.d.Unmatched != rules.UnmatchedDefault && p.d.Unmatched != d.Unmatched:
		p.BadAt(p.unmatchedAt, fmt.Sprintf("unmatched: %s, but the domain has %s in another file", p.d.Unmatched, d.Unmatched), "the same unmatched in all files of a domain, or none")
	}
	d.Merge(p.d, p.refuseSecond)
	if len(p.Errs) == 0 {
		p.refuseManyPatterns(d.Root(), p.general)
	}
}

// refuseSecond reports a descriptor that has the same entry as first, which is in an
// earlier file.
func (p *parser) refuseSecond(n, first *rules.Node) {
	here, there := p.shared.outermost[n], p.shared.outermost[first]
	p.BadAt(here.Position, fmt.Sprintf("%s again, the first is in %s", entryText(n.Entry()), yamlfile.FileLine(there.reader.File, there.Line)),
		"each key with each value once in a domain")
}
