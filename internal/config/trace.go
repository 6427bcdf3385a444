package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Trace says how the search for the rule of a descriptor went.
type Trace struct {
	// Levels has one for each entry that was looked for, in order.
	Levels []TracedLevel
	// Rule is what Match returns.
	Rule *Rule
	// Hints name what people may have meant instead, a sentence each.
	Hints []string
}

// TracedLevel is the search for one entry among the descriptors of one level.
type TracedLevel struct {
	Entry bucket.Entry
	// Candidates are in the order in which they are tried; of many the nearest.
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
	// Matched is set on the one by which the search went on or ended.
	Matched bool
	// WhyNot says why the search did not go on or end there.
	WhyNot string
}

// Bounds of the traces of one request, which a caller chooses.
const (
	// maxCandidates is how many a level shows.
	maxCandidates = 10
	// maxAllCandidates is how many all levels show. Beyond it a level shows only
	// what matched.
	maxAllCandidates = 1000
	// maxTraceLooks is about how many descriptors of the file are looked at, to
	// find the nearest and to give hints.
	maxTraceLooks = 500_000
)

// Trace searches the rules of a request's descriptors, as Match does, and tells how
// that went. However many rules and descriptors there are, it takes no longer than
// to look at a few hundred thousand descriptors of a file.
func (r *Rules) Trace(domain string, descriptors [][]bucket.Entry) []Trace {
	t := &tracer{domain: r.domains[domain], looks: maxTraceLooks, shows: maxAllCandidates, hints: maxAllHints}
	traces := make([]Trace, len(descriptors))
	if t.domain == nil {
		if len(traces) > 0 {
			traces[0].Hints = []string{r.unknownDomain(domain)}
		}
		return traces
	}
	for i, entries := range descriptors {
		traces[i] = t.trace(entries)
	}
	t.hintTogether(descriptors, traces)
	return traces
}

// tracer traces the descriptors of one request.
type tracer struct {
	domain *Domain
	// looks, shows and hints are how many are left.
	looks, shows, hints int
}

// walk is how far the search for a descriptor came.
type walk struct {
	entries []bucket.Entry
	// path has the node of each entry that matched.
	path []*node
}

// last is the node that was reached: the root if no entry matched.
func (w *walk) last(root *node) *node {
	if len(w.path) == 0 {
		return root
	}
	return w.path[len(w.path)-1]
}

// isEnd reports whether all entries matched.
func (w *walk) isEnd() bool { return len(w.path) == len(w.entries) }

// walk follows entries as far as they match.
func (t *tracer) walk(entries []bucket.Entry) *walk {
	w := &walk{entries: entries}
	n := t.domain.root
	for i := range entries {
		if n = n.next(&entries[i]); n == nil {
			break
		}
		w.path = append(w.path, n)
	}
	return w
}

func (t *tracer) trace(entries []bucket.Entry) (tr Trace) {
	w := t.walk(entries)
	n := t.domain.root
	for i := range entries {
		if i > 0 && !n.hasBelow() {
			break
		}
		var next *node
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
		tr.Rule = n.rule
	}
	tr.Hints = t.hint(w, tr.Rule)
	return tr
}

// whyNotOn says why the search does not go on or end at a node that matches, where
// so many entries are left.
func (t *tracer) whyNotOn(n *node, left int) string {
	switch {
	case n == nil:
		return ""
	case left > 0 && !n.hasBelow():
		return "it matches, but there are no descriptors below it"
	case left > 0 || n.rule != nil:
		return ""
	case !n.hasBelow():
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

// depthOfLimit returns how far below a node the nearest limit stands, or 0 if none
// is found among those that are looked at.
func (t *tracer) depthOfLimit(n *node) int {
	const most = 2000
	level := []*node{n}
	for depth := 1; len(level) > 0 && len(level) <= most; depth++ {
		var below []*node
		for _, n := range level {
			for child := range n.below {
				if t.looks--; t.looks < 0 || len(below) > most {
					return 0
				}
				if child.rule != nil {
					return depth
				}
				below = append(below, child)
			}
		}
		level = below
	}
	return 0
}

// countBelow is how many descriptors are one level below.
func (n *node) countBelow() int {
	count := len(n.exact)
	for i := range n.keys {
		count += len(n.keys[i].patterns.nodes)
		if n.keys[i].bare != nil {
			count++
		}
	}
	return count
}

// level traces the search for an entry among the descriptors below n; chosen is the
// one that matched, or nil, and whyNot why the search neither went on nor ended
// there.
func (t *tracer) level(n, chosen *node, e bucket.Entry, whyNot string) TracedLevel {
	l := TracedLevel{Entry: e}
	add := func(child *node, why string) {
		if child == chosen {
			why = whyNot
		}
		file, line := t.placeOf(child)
		l.Candidates = append(l.Candidates, Candidate{
			Entry: shownEntry(child.entry), File: file, Line: line, Matched: child == chosen && why == "", WhyNot: why,
		})
		t.shows--
	}
	if t.shows <= 0 {
		if chosen != nil {
			add(chosen, "")
		}
	} else {
		t.exact(n, chosen, e, add)
		if k := n.key(e.Key); k != nil {
			t.general(k, chosen, e, add)
		}
		if len(l.Candidates) == 0 {
			t.otherKeys(n, e.Key, add)
		}
	}
	l.NotShown = n.countBelow() - len(l.Candidates)
	return l
}

// shown are how many exact values and how many patterns a level shows. With the
// bare key these are maxCandidates.
const (
	shownExact    = 5
	shownPatterns = 4
)

// exact adds the descriptors of the entry's key with an exact value: first the one
// that matches, then those nearest to the value.
func (t *tracer) exact(n, chosen *node, e bucket.Entry, add func(*node, string)) {
	match := n.exact[e]
	if match != nil {
		add(match, "")
	}
	if t.looks < len(n.exact) {
		return
	}
	t.looks -= len(n.exact)
	var near nearest
	for at, child := range n.exact {
		if at.Key == e.Key && child != match {
			near.add(child, distance(e.Value, at.Value), shownExact-1)
		}
	}
	for _, c := range near.list {
		why := "another value"
		if how := Almost(e.Value, c.node.entry.Value); how != "" {
			why += "; it differs " + how
		}
		add(c.node, why)
	}
}

// general adds the descriptors of a key that have no exact value.
func (t *tracer) general(k *keyNodes, chosen *node, e bucket.Entry, add func(*node, string)) {
	before := "" // what goes before those that follow
	if chosen != nil && chosen.isExact() {
		before = "an exact value goes before"
	}
	why := func(child *node) string {
		switch {
		case child == chosen:
			before = "an earlier pattern goes before"
			return ""
		case !matches(child.entry.Value, e.Value):
			return "the pattern does not match"
		case before != "":
			return before
		}
		return fmt.Sprintf("the value has more than %d bytes, too many for patterns with text between two *", glob.MaxSearchedValue)
	}
	for _, child := range t.nearPatterns(k, chosen, e.Value) {
		add(child, why(child))
	}
	if k.bare == nil {
		return
	}
	if chosen != nil && !chosen.isExact() && chosen != k.bare {
		before = "a pattern goes before"
	}
	add(k.bare, before)
}

// nearPatterns returns, in their order, the patterns of a key that say most about a
// value: the chosen one, and those that have most of the value in common.
func (t *tracer) nearPatterns(k *keyNodes, chosen *node, value string) []*node {
	all := k.patterns.nodes
	if len(all) <= shownPatterns {
		return all
	}
	if t.looks -= len(all); t.looks < 0 {
		return nil
	}
	var near nearest
	order := make(map[*node]int, shownPatterns+1)
	for i, child := range all {
		d := distance(value, child.entry.Value)
		if child == chosen {
			d = -1
		}
		if near.add(child, d, shownPatterns) {
			order[child] = i
		}
	}
	shown := make([]*node, len(near.list))
	for i, c := range near.list {
		shown[i] = c.node
	}
	slices.SortFunc(shown, func(a, b *node) int { return cmp.Compare(order[a], order[b]) })
	return shown
}

// otherKeys adds, where no descriptor has the key of an entry, one for each key that
// there is.
func (t *tracer) otherKeys(n *node, key string, add func(*node, string)) {
	first := t.firstOfKeys(n)
	var near nearest
	for other, child := range first {
		near.add(child, distance(key, other), maxCandidates)
	}
	for _, c := range near.list {
		add(c.node, "another key")
	}
}

// firstOfKeys returns the first descriptor of each key that is one level below n.
func (t *tracer) firstOfKeys(n *node) map[string]*node {
	first := make(map[string]*node)
	if t.looks -= n.countBelow(); t.looks < 0 {
		return first
	}
	for child := range n.below {
		if before := first[child.entry.Key]; before == nil || compareNodes(child, before) < 0 {
			first[child.entry.Key] = child
		}
	}
	return first
}

// placeOf returns where a descriptor begins.
func (t *tracer) placeOf(n *node) (file string, line int) {
	top := n
	for top.up != nil && top.up.up != nil {
		top = top.up
	}
	file = t.domain.File
	if top.file > 0 {
		file = t.domain.files[top.file-1]
	}
	if t.domain.Line > 0 {
		line = int(n.line)
	}
	return file, line
}

// shownEntry is an entry as people read it, and not longer than fits on a few lines.
func shownEntry(e bucket.Entry) string {
	text := yamlfile.Printable(e.Key)
	if e.Value != "" {
		text += "=" + shownValue(e.Value)
	}
	return text
}

func shownValue(value string) string {
	if short := yamlfile.Shorten(value); short != value {
		return yamlfile.Quote(value)
	}
	return yamlfile.Printable(value)
}

// matches reports whether a pattern by itself matches a value.
func matches(pattern, value string) bool {
	var one glob.Set
	one.Add(pattern)
	return one.First(value) == 0
}

// nearest keeps the nearest of many descriptors, the nearest first.
type nearest struct {
	list []nearNode
}

type nearNode struct {
	*node
	distance int
}

// add reports whether n is among the nearest so far.
func (l *nearest) add(n *node, distance, most int) bool {
	c := nearNode{n, distance}
	if len(l.list) == most && compareNear(c, l.list[most-1]) > 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(l.list, c, compareNear)
	l.list = slices.Insert(l.list, i, c)
	l.list = l.list[:min(len(l.list), most)]
	return true
}

func compareNear(a, b nearNode) int {
	return cmp.Or(cmp.Compare(a.distance, b.distance), compareNodes(a.node, b.node))
}

// compareNodes orders the descriptors of a level by where they stand.
func compareNodes(a, b *node) int {
	return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line),
		strings.Compare(a.entry.Key, b.entry.Key), strings.Compare(a.entry.Value, b.entry.Value))
}
