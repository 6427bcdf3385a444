package config

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Reach says whether rules are for a subject: the descriptors that are, or begin with,
// some entries.
type Reach struct {
	// HasRule is whether there is such a rule.
	HasRule bool
	// Hints name what people may have meant instead, a sentence each, as those of a
	// Trace do.
	Hints []string
}

// Reacher says whether rules are for subjects. However many rules and subjects there
// are, it takes no longer than to look at a few hundred thousand descriptors of a file:
// beyond that it gives no hints. It is for one goroutine.
type Reacher struct {
	rules *Rules
	tracer
	// nodes is how many descriptors may still be passed in search of a rule.
	nodes int
}

// Reacher returns one that asks these rules.
func (r *Rules) Reacher() *Reacher {
	return &Reacher{rules: r, tracer: tracer{looks: maxTraceLooks, shows: maxAllCandidates, hints: maxAllHints}, nodes: maxTraceLooks}
}

// Exactly says whether a rule is for the descriptor with these very entries.
func (r *Reacher) Exactly(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, (*node).hasRule)
}

// Beginning says whether a rule is for descriptors that are, or begin with, these
// entries. Among very many descriptors without a limit it takes it that there is one.
func (r *Reacher) Beginning(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, r.leadsToRule)
}

// reach says whether entries lead to a descriptor of the file that is wanted.
func (r *Reacher) reach(domain string, entries []bucket.Entry, wanted func(*node) bool) (found Reach) {
	if r.domain = r.rules.domains[domain]; r.domain == nil {
		return Reach{Hints: []string{r.rules.unknownDomain(domain)}}
	}
	w := r.walk(entries)
	found.HasRule = len(entries) > 0 && w.isEnd() && wanted(w.last(r.domain.root))
	if r.hints <= 0 || r.looks <= 0 {
		return found
	}
	hints := append(r.almostTaken(w), emptyValues(w)...)
	if !found.HasRule {
		others := r.unmatched(w, wanted)
		if len(others) == 0 {
			others = r.whatThereIs(w)
		}
		hints = append(hints, others...)
	}
	found.Hints = r.spend(hints)
	return found
}

// leadsToRule reports whether n or a descriptor below it has a rule.
func (r *Reacher) leadsToRule(n *node) bool {
	if n.rule != nil {
		return true
	}
	for child := range n.below {
		if r.nodes--; r.nodes < 0 || r.leadsToRule(child) {
			return true
		}
	}
	return false
}

// whatThereIs is the hint where nothing in the file is near to what was named: what
// stands where the entries lead nowhere. There is none after too many looks.
func (r *Reacher) whatThereIs(w *walk) []string {
	last := w.last(r.domain.root)
	switch {
	case w.isEnd() || !last.hasBelow():
		return []string{fmt.Sprintf("%s leads to %s (%s), where no limit is", ShowEntries(w.entries[:len(w.path)]), shownEntry(last.entry), r.where(last))}
	}
	level := r.level(last, nil, w.entries[len(w.path)], "")
	if len(level.Candidates) == 0 {
		return nil
	}
	const few = 3
	var there []string
	for _, c := range level.Candidates[:min(few, len(level.Candidates))] {
		there = append(there, fmt.Sprintf("%s (%s)", c.Entry, lineOf(c.File, c.Line)))
	}
	text := yamlfile.Commas(there)
	if more := len(level.Candidates) - len(there) + level.NotShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(w.path) == 0 {
		return []string{"rules of the domain begin with " + text}
	}
	return []string{fmt.Sprintf("rules that begin with %s go on with %s", ShowEntries(w.entries[:len(w.path)]), text)}
}
