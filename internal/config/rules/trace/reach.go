package trace

import (
	"fmt"
	"math"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Reach says whether rules exist for a subject: for descriptors that are, or begin with,
// some entries.
type Reach struct {
	// HasRule tells whether there is such a rule.
	HasRule bool
	// Hints name what may have been meant instead, a sentence each, like those of a
	// Search.
	Hints []string
}

// Reacher says whether rules exist for the subjects of a request. The result for one does
// not depend on the others, only on their number: each has its share of the hints, and of
// the descriptors looked at for them, which are about maxLooks for all subjects. In
// addition each descriptor of the file is looked at once at most, for its key. It is for
// one goroutine.
type Reacher struct {
	rules *rules.Set
	share share
	tracer
}

// share is what the hints about one subject may use.
type share struct{ looks, hints int }

// NewReacher returns a Reacher for these rules and a request with so many subjects.
func NewReacher(r *rules.Set, subjects int) *Reacher {
	subjects = max(subjects, 1)
	return &Reacher{
		rules:  r,
		share:  share{looks: maxLooks / subjects, hints: min(maxHints, max(1, maxAllHints/subjects))},
		tracer: tracer{keyLooks: math.MaxInt},
	}
}

// Exactly says whether a rule exists for the descriptor with exactly these entries.
func (r *Reacher) Exactly(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, hasRule)
}

// Beginning says whether a rule exists for descriptors that are, or begin with, these
// entries.
func (r *Reacher) Beginning(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, func(n *rules.Node) bool { return r.domain.LeadsToRule(n) })
}

// reach says whether entries lead to a wanted descriptor of the file.
func (r *Reacher) reach(domain string, entries []bucket.Entry, wanted func(*rules.Node) bool) (found Reach) {
	if r.domain = r.rules.Domain(domain); r.domain == nil {
		return Reach{Hints: []string{unknownDomain(r.rules, domain)}}
	}
	r.looks, r.shows, r.hints = r.share.looks, maxCandidates, r.share.hints
	w := r.walk(entries)
	found.HasRule = len(entries) > 0 && w.isEnd() && wanted(w.last(r.domain.Root()))
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

// whatThereIs is the hint if nothing in the file is near what was named: what the file
// has where the entries lead nowhere. There is none after too many looks.
func (r *Reacher) whatThereIs(w *walk) []string {
	last := w.last(r.domain.Root())
	if w.isEnd() || !last.HasBelow() {
		text := fmt.Sprintf("%s leads to %s (%s), where no limit is", words.Entries(w.entries[:len(w.path)]), words.Descriptor(last.Entry()), r.where(last))
		if last.HasBelow() {
			text += ", nor below it one that a request reaches"
		}
		return []string{text}
	}
	level := r.level(last, nil, w.entries[len(w.path)], "")
	if len(level.Candidates) == 0 {
		return nil
	}
	const maxShown = 3
	var there []string
	for _, c := range level.Candidates[:min(maxShown, len(level.Candidates))] {
		there = append(there, fmt.Sprintf("%s (%s)", words.Descriptor(c.at), yamlfile.FileLine(c.File, c.Line)))
	}
	text := yamlfile.Commas(there)
	if more := len(level.Candidates) - len(there) + level.NotShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(w.path) == 0 {
		return []string{"rules of the domain begin with " + text}
	}
	return []string{fmt.Sprintf("rules that begin with %s go on with %s", words.Entries(w.entries[:len(w.path)]), text)}
}
