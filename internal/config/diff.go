package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Effect is what a difference between two sets of rules does to requests.
type Effect string

// Effects.
const (
	// Stricter and Looser rules allow less or more than before, at no time the
	// other way round.
	Stricter Effect = "stricter"
	Looser   Effect = "looser"
	// Changed rules allow neither more nor less throughout.
	Changed Effect = "changed"
	// Afresh is said where counts begin from nothing, because their keys change.
	Afresh Effect = "afresh"
	// Matched is said where requests have the limits of another rule than before.
	Matched Effect = "matched"
)

// Difference is one effect that new rules have in place of old ones.
type Difference struct {
	Domain string `json:"domain"`
	// Rule is the path of the rule or descriptor; empty: the whole domain.
	Rule   string `json:"rule"`
	Effect Effect `json:"effect"`
	// Text says what is different, in plain words.
	Text string `json:"text"`
}

// Diff returns what becomes different for requests when rules take the place of
// those before, by domain and in the order of the rules. How files are written,
// and in which of them something stands, makes no difference.
func (r *Rules) Diff(before *Rules) []Difference {
	var all []Difference
	for _, name := range unionOf(before.domains, r.domains) {
		d := differ{before: before.domains[name], after: r.domains[name]}
		d.domain(name)
		all = append(all, d.found...)
	}
	return all
}

// unionOf returns the keys of both maps, sorted.
func unionOf[V any](a, b map[string]V) []string {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// differ compares a domain with the one of that name before. One of them may be
// nil.
type differ struct {
	before, after *Domain
	name          string
	found         []Difference
}

func (d *differ) tell(path string, effect Effect, format string, args ...any) {
	d.found = append(d.found, Difference{Domain: d.name, Rule: path, Effect: effect, Text: fmt.Sprintf(format, args...)})
}

func (d *differ) domain(name string) {
	d.name = name
	switch {
	case d.before == nil:
		d.tell("", Stricter, "a new domain with %s; until now its requests had no limit", yamlfile.Plural(int64(len(d.after.rules)), "rule"))
		d.before = &Domain{root: &node{}}
	case d.after == nil:
		d.tell("", Looser, "the domain is gone with its %s; its requests have no limit any more", yamlfile.Plural(int64(len(d.before.rules)), "rule"))
		return
	default:
		d.settings()
	}
	d.walk(nil, d.before.root, d.after.root)
}

// settings tells what is different for the domain as a whole.
func (d *differ) settings() {
	if d.before.HashTag != d.after.HashTag {
		d.tell("", Afresh, "hash_tag %s instead of %s: keys move, so on Redis all counts of the domain begin afresh",
			orNone(d.after.HashTag), orNone(d.before.HashTag))
	}
	if was, is := d.before.Unmatched, d.after.Unmatched; was != is {
		effect := Changed // by the daemon's setting, which may say either
		switch {
		case is == DenyUnmatched:
			effect = Stricter
		case was == DenyUnmatched:
			effect = Looser
		}
		d.tell("", effect, "descriptors without a rule: %s; until now %s", is, was)
	}
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return yamlfile.Printable(name)
}

// representative is a value that a bare key stands for: one that no file has.
const representative = "\x00"

// walk compares what is below two descriptors that have the same path. One of them
// may be nil.
func (d *differ) walk(path []bucket.Entry, before, after *node) {
	if len(path) > 0 {
		d.descriptor(path, before, after)
	}
	d.order(path, before, after)
	for _, entry := range childrenOf(before, after) {
		d.walk(append(path[:len(path):len(path)], entry), before.child(entry), after.child(entry))
	}
}

// childrenOf returns the entries of the next level of two descriptors: exact values
// first, then keys with their patterns, as after has them and then as before.
func childrenOf(before, after *node) []bucket.Entry {
	var exact, general []bucket.Entry
	seen := make(map[bucket.Entry]bool)
	add := func(to *[]bucket.Entry, n *node) {
		if !seen[n.entry] {
			seen[n.entry] = true
			*to = append(*to, n.entry)
		}
	}
	for _, n := range []*node{after, before} {
		if n == nil {
			continue
		}
		for _, below := range n.exact {
			add(&exact, below)
		}
		for i := range n.keys {
			for _, below := range n.keys[i].patterns.nodes {
				add(&general, below)
			}
			if bare := n.keys[i].bare; bare != nil {
				add(&general, bare)
			}
		}
	}
	slices.SortFunc(exact, func(a, b bucket.Entry) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.Value, b.Value)
	})
	return append(exact, general...)
}

// child returns the descriptor of the next level with exactly this entry, as in the
// file, or nil.
func (n *node) child(e bucket.Entry) *node {
	if n == nil {
		return nil
	}
	if below := n.exact[e]; below != nil {
		return below
	}
	k := n.key(e.Key)
	if k == nil {
		return nil
	}
	if e.Value == "" {
		return k.bare
	}
	for _, below := range k.patterns.nodes {
		if below.entry.Value == e.Value {
			return below
		}
	}
	return nil
}

// descriptor compares what requests with the entries of a path get. A pattern's
// text stands for the values that it matches: what covers it matches the text.
func (d *differ) descriptor(path []bucket.Entry, before, after *node) {
	entries := slices.Clone(path)
	for i := range entries {
		if entries[i].Value == "" {
			entries[i].Value = representative
		}
	}
	old, now := d.before.Match(entries), d.after.Match(entries)
	if before != nil {
		old = before.rule
	}
	if after != nil {
		now = after.rule
	}
	name := pathText(path)
	defer d.below(name, entries, before, after)
	switch {
	case before != nil && before.rule != nil && after != nil && after.rule != nil:
		d.rule(name, old, now)
	case after != nil && after.rule != nil: // a new rule
		also := overlapNote(after, d.before.root.at(path[:len(path)-1]), "had")
		if old == nil {
			d.tell(name, ifElse(now.Unlimited, Changed, Stricter), "a new rule, %s; until now no limit%s", now.brief(), also)
		} else {
			d.tell(name, Matched, "a new rule, %s; until now %s of the rule %s%s", now.brief(), old.brief(), old.Path(), also)
		}
	case before != nil && before.rule != nil: // a rule that is gone
		also := overlapNote(before, d.after.root.at(path[:len(path)-1]), "have")
		if now == nil {
			d.tell(name, ifElse(old.Unlimited, Changed, Looser), "the rule is gone, and there is no limit any more; until now %s%s", old.brief(), also)
		} else {
			d.tell(name, Matched, "the rule is gone; now %s of the rule %s, until now %s%s", now.brief(), now.Path(), old.brief(), also)
		}
	case after != nil && before == nil: // without a limit, in the way of one
		also := overlapNote(after, d.before.root.at(path[:len(path)-1]), "had")
		if old != nil {
			d.tell(name, Looser, "a new descriptor without a limit; until now %s of the rule %s%s", old.brief(), old.Path(), also)
		} else if also != "" {
			d.tell(name, Looser, "a new descriptor without a limit%s", also)
		}
	case before != nil && after == nil:
		also := overlapNote(before, d.after.root.at(path[:len(path)-1]), "have")
		if now != nil {
			d.tell(name, Stricter, "the descriptor without a limit is gone; now %s of the rule %s%s", now.brief(), now.Path(), also)
		} else if also != "" {
			d.tell(name, Stricter, "the descriptor without a limit is gone%s", also)
		}
	}
}

// below tells of descriptors with more entries than a descriptor's that is new or
// gone: they match below it, or below the next that fits, and never both.
func (d *differ) below(name string, entries []bucket.Entry, before, after *node) {
	const text = "descriptors with more entries %s matched below %s"
	switch {
	case before == nil:
		if n := d.before.root.find(entries); n != nil && n.hasBelow() {
			d.tell(name, Matched, text, "are not any more", pathText(n.path()))
		}
	case after == nil:
		if n := d.after.root.find(entries); n != nil && n.hasBelow() {
			d.tell(name, Matched, text, "are now", pathText(n.path()))
		}
	}
}

// find returns the descriptor that a caller's entries lead to, or nil.
func (n *node) find(entries []bucket.Entry) *node {
	for i := 0; i < len(entries) && n != nil; i++ {
		n = n.next(&entries[i])
	}
	return n
}

// at returns the descriptor that entries lead to, as they are in the file, or nil.
func (n *node) at(entries []bucket.Entry) *node {
	for _, e := range entries {
		n = n.child(e)
	}
	return n
}

func ifElse(condition bool, yes, no Effect) Effect {
	if condition {
		return yes
	}
	return no
}

// overlapNote names the patterns of a level of the other rules whose values a
// pattern takes or leaves in part: those that come after it where both have them.
func overlapNote(n, level *node, have string) string {
	if level == nil || !glob.HasStar(n.entry.Value) {
		return ""
	}
	k := level.key(n.entry.Key)
	if k == nil {
		return ""
	}
	rank := rankOf(n.up.key(n.entry.Key))
	var names []string
	for _, other := range k.patterns.nodes {
		place, still := rank[other.entry.Value]
		if still && place < rank[n.entry.Value] ||
			glob.Covers(other.entry.Value, n.entry.Value) || !glob.Overlap(other.entry.Value, n.entry.Value) {
			continue
		}
		names = append(names, yamlfile.Printable(other.entry.Value))
	}
	if names == nil {
		return ""
	}
	return "; values that also fit " + fewOf(names) + " " + have + " the limits of that one"
}

// rankOf returns the places of the patterns of a key.
func rankOf(k *keyNodes) map[string]int {
	rank := make(map[string]int)
	if k != nil {
		for i, n := range k.patterns.nodes {
			rank[n.entry.Value] = i
		}
	}
	return rank
}

// fewOf returns up to three names.
func fewOf(names []string) string {
	const most = 3
	if len(names) <= most {
		return yamlfile.Commas(names)
	}
	return fmt.Sprintf("%s and %d more", yamlfile.Commas(names[:most]), len(names)-most)
}

// maxPatternsCompared bounds the patterns of one key whose order is compared: each
// is held against the others.
const maxPatternsCompared = 2000

// order tells where patterns that both have match in another order.
func (d *differ) order(path []bucket.Entry, before, after *node) {
	if before == nil || after == nil {
		return
	}
	for i := range after.keys {
		k := &after.keys[i]
		old := rankOf(before.key(k.key))
		var both []*node // in the order of after
		for _, n := range k.patterns.nodes {
			if _, ok := old[n.entry.Value]; ok {
				both = append(both, n)
			}
		}
		if slices.IsSortedFunc(both, func(a, b *node) int { return old[a.entry.Value] - old[b.entry.Value] }) {
			continue
		}
		if len(both) > maxPatternsCompared {
			d.tell(pathText(append(path[:len(path):len(path)], bucket.Entry{Key: k.key})), Matched,
				"the order of its %d patterns is another: values that fit several may have other limits than until now", len(both))
			continue
		}
		for j, later := range both {
			for _, first := range both[:j] {
				if old[first.entry.Value] > old[later.entry.Value] && glob.Overlap(first.entry.Value, later.entry.Value) {
					d.tell(pathText(append(path[:len(path):len(path)], first.entry)), Matched,
						"comes before %s: values that fit both have its limits, %s; until now those of the other, %s",
						yamlfile.Printable(later.entry.Value), first.rule.brief(), later.rule.brief())
				}
			}
		}
	}
}

// pathText writes entries as Rule.Path does.
func pathText(entries []bucket.Entry) string { return string(appendPathText(nil, entries)) }

func appendPathText(dst []byte, entries []bucket.Entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, " / "...)
		}
		dst = append(dst, yamlfile.Printable(entries[i].Key)...)
		if entries[i].Value != "" {
			dst = append(dst, '=')
			dst = append(dst, yamlfile.Printable(entries[i].Value)...)
		}
	}
	return dst
}
