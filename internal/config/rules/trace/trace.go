package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Search describes how the search for the rule of a descriptor went.
type Search struct {
	// Levels has one item for each entry that was looked for, in order.
	Levels []Level
	// Rule is what Match returns.
	Rule *rules.Rule
	// Hints name what may have been meant instead, a sentence each.
	Hints []string
}

// Level is the search for one entry among the descriptors of one level.
type Level struct {
	Entry bucket.Entry
	// Candidates are in the order in which they are tried; only the nearest if there are
	// many.
	Candidates []Candidate
	// NotShown is how many more there are at this level.
	NotShown int
}

// Candidate is a descriptor of the file that an entry was compared with.
type Candidate struct {
	// Entry is as in the file: "user=alice", "path=/api/*" or "user".
	Entry string
	File  string
	// Line is 0 if it does not come from a file.
	Line int
	// Matched is set on the one with which the search went on or ended.
	Matched bool
	// WhyNot says why the search did not go on or end there.
	WhyNot string
	// at is its entry.
	at bucket.Entry
}

// Bounds of the traces of one request, which a caller chooses.
const (
	// maxCandidates is how many a level shows.
	maxCandidates = 10
	// maxAllCandidates is how many all levels together show. Beyond it a level shows only
	// what matched.
	maxAllCandidates = 1000
	// maxLooks is roughly how many descriptors of the file are looked at to find the
	// nearest and to give hints.
	maxLooks = 500_000
)

// Of searches for the rules of a request's descriptors, as Match does, and describes how
// that went. However many rules and descriptors there are, it takes no longer than
// looking at a few hundred thousand descriptors of a file.
func Of(r *rules.Set, domain string, descriptors [][]bucket.Entry) []Search {
	t := &tracer{domain: r.Domain(domain), looks: maxLooks, shows: maxAllCandidates, hints: maxAllHints, keyLooks: maxLooks}
	traces := make([]Search, len(descriptors))
	if t.domain == nil {
		if len(traces) > 0 {
			traces[0].Hints = []string{unknownDomain(r, domain)}
		}
		return traces
	}
	for i, entries := range descriptors {
		traces[i] = t.trace(entries)
	}
	t.hintTogether(descriptors, traces)
	return traces
}

func (t *tracer) trace(entries []bucket.Entry) (tr Search) {
	w := t.walk(entries)
	n := t.domain.Root()
	for i := range entries {
		if i > 0 && !n.HasBelow() {
			break
		}
		var next *rules.Node
		if i < len(w.path) {
			next = w.path[i]
		}
		why := t.whyNotOn(next, len(entries)-i-1)
		tr.Levels = append(tr.Levels, t.level(n, next, entries[i], why))
		if next == nil {
			break
		}
		n = next
	}
	if len(entries) > 0 && w.isEnd() {
		tr.Rule = n.Rule()
	}
	tr.Hints = t.hint(w, tr.Rule)
	return tr
}

// whyNotOn says why the search does not go on or end at a node that matches, with so many
// entries left.
func (t *tracer) whyNotOn(n *rules.Node, left int) string {
	switch {
	case n == nil:
		return ""
	case left > 0 && !n.HasBelow():
		return "it matches, but there are no descriptors below it"
	case left > 0 || n.Rule() != nil:
		return ""
	case !n.HasBelow():
		return "it matches, but has no limit"
	}
	return "the descriptor ends here, but the limit stands " + levelsBelow(t.depthOfLimit(n))
}

func levelsBelow(depth int) string {
	switch depth {
	case 0:
		return "below"
	case 1:
		return "one level below"
	}
	return fmt.Sprintf("%d levels below", depth)
}

// depthOfLimit returns how far below a node the nearest limit is, or 0 if none is found
// among those looked at.
func (t *tracer) depthOfLimit(n *rules.Node) int {
	const maxLevel = 2000
	level := []*rules.Node{n}
	for depth := 1; len(level) > 0 && len(level) <= maxLevel; depth++ {
		var below []*rules.Node
		for _, n := range level {
			for child := range n.Below {
				if !t.look(1) || len(below) > maxLevel {
					return 0
				}
				if child.Rule() != nil {
					return depth
				}
				below = append(below, child)
			}
		}
		level = below
	}
	return 0
}

// level traces the search for an entry among the descriptors below n; chosen is the one
// that matched, or nil, and whyNot why the search neither went on nor ended there.
func (t *tracer) level(n, chosen *rules.Node, e bucket.Entry, whyNot string) Level {
	l := Level{Entry: e}
	add := func(child *rules.Node, why string) {
		if child == chosen {
			why = whyNot
		}
		file, line := t.domain.PositionOf(child)
		l.Candidates = append(l.Candidates, Candidate{
			Entry: shownEntry(child.Entry()), File: file, Line: line, Matched: child == chosen && why == "", WhyNot: why, at: child.Entry(),
		})
		t.shows--
	}
	if t.shows <= 0 {
		if chosen != nil {
			add(chosen, "")
		}
	} else {
		t.exact(n, e, add)
		if k := n.Key(e.Key); k != nil {
			t.general(k, chosen, e, add)
		}
		if len(l.Candidates) == 0 {
			t.otherKeys(n, e.Key, add)
		}
	}
	l.NotShown = n.BelowCount() - len(l.Candidates)
	return l
}

// shown are how many exact values and how many patterns a level shows. Together with the
// bare key they make maxCandidates.
const (
	shownExact    = 5
	shownPatterns = 4
)

// exact adds the descriptors with the entry's key and an exact value: first the one that
// matches, then those nearest to the value.
func (t *tracer) exact(n *rules.Node, e bucket.Entry, add func(*rules.Node, string)) {
	match := n.Exact(e)
	if match != nil {
		add(match, "")
	}
	if !t.look(n.ExactCount()) {
		return
	}
	var near nearest
	for child := range n.AllExact {
		if at := child.Entry(); at.Key == e.Key && child != match {
			near.add(child, distance(e.Value, at.Value), shownExact-1)
		}
	}
	for _, c := range near.list {
		why := "another value"
		if how := Almost(e.Value, c.node.Entry().Value); how != "" {
			why += "; it differs " + how
		}
		add(c.node, why)
	}
}

// general adds the descriptors of a key that have no exact value.
func (t *tracer) general(k *rules.Key, chosen *rules.Node, e bucket.Entry, add func(*rules.Node, string)) {
	before := "" // what precedes those that follow
	if chosen != nil && chosen.IsExact() {
		before = "an exact value goes before"
	}
	why := func(child *rules.Node) string {
		switch {
		case child == chosen:
			before = "an earlier pattern goes before"
			return ""
		case !matches(child.Entry().Value, e.Value):
			return "the pattern does not match"
		case before != "":
			return before
		}
		return fmt.Sprintf("the value has more than %d bytes, too many for patterns with text between two *", glob.MaxSearchedValue)
	}
	for _, child := range t.nearPatterns(k, chosen, e.Value) {
		add(child, why(child))
	}
	if k.Bare() == nil {
		return
	}
	if chosen != nil && !chosen.IsExact() && chosen != k.Bare() {
		before = "a pattern goes before"
	}
	add(k.Bare(), before)
}

// nearPatterns returns, in order, the patterns of a key that say most about a value: the
// chosen one, and those that have most of the value in common.
func (t *tracer) nearPatterns(k *rules.Key, chosen *rules.Node, value string) []*rules.Node {
	all := k.Patterns()
	if len(all) <= shownPatterns {
		return all
	}
	if !t.look(len(all)) {
		return nil
	}
	var near nearest
	order := make(map[*rules.Node]int, shownPatterns+1)
	for i, child := range all {
		d := distance(value, child.Entry().Value)
		if child == chosen {
			d = -1
		}
		if near.add(child, d, shownPatterns) {
			order[child] = i
		}
	}
	shown := make([]*rules.Node, len(near.list))
	for i, c := range near.list {
		shown[i] = c.node
	}
	slices.SortFunc(shown, func(a, b *rules.Node) int { return cmp.Compare(order[a], order[b]) })
	return shown
}

// otherKeys adds one descriptor for each existing key, if none has the key of an entry.
func (t *tracer) otherKeys(n *rules.Node, key string, add func(*rules.Node, string)) {
	below := t.keysOf(n)
	if below == nil || !t.look(len(below.names)) {
		return
	}
	var near nearest
	for other, child := range below.first {
		near.add(child, distance(key, other), maxCandidates)
	}
	for _, c := range near.list {
		add(c.node, "another key")
	}
}

// nearest keeps the nearest of many descriptors, nearest first.
type nearest struct {
	list []nearNode
}

type nearNode struct {
	node     *rules.Node
	distance int
}

// add reports whether n is among the nearest so far.
func (l *nearest) add(n *rules.Node, distance, maxLength int) bool {
	c := nearNode{n, distance}
	if len(l.list) == maxLength && compareNear(c, l.list[maxLength-1]) > 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(l.list, c, compareNear)
	l.list = slices.Insert(l.list, i, c)
	l.list = l.list[:min(len(l.list), maxLength)]
	return true
}

func compareNear(a, b nearNode) int {
	return cmp.Or(cmp.Compare(a.distance, b.distance), a.node.Compare(b.node))
}
