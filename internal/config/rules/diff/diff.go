package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Between returns what changes for requests when new rules replace old ones, by domain
// and in the order of the rules. How the rules are spread over files, and how those are
// written, makes no difference.
func Between(before, after *rules.Set) []Difference {
	var all []Difference
	for _, name := range unionOf(before, after) {
		d := differ{before: before.Domain(name), after: after.Domain(name)}
		d.domain(name)
		all = append(all, d.found...)
	}
	return all
}

// unionOf returns the names of the domains of both, sorted.
func unionOf(a, b *rules.Set) []string {
	var names []string
	for _, d := range a.Domains() {
		names = append(names, d.Name)
	}
	for _, d := range b.Domains() {
		if !a.HasDomain(d.Name) {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *differ) domain(name string) {
	d.name = name
	switch {
	case d.before == nil:
		d.add("", Stricter, "a new domain with %s; until now its requests had no limit", yamlfile.Plural(int64(len(d.after.Rules())), "rule"))
		d.before = rules.NewDomain("")
	case d.after == nil:
		d.add("", Looser, "the domain is gone with its %s; its requests have no limit any more", yamlfile.Plural(int64(len(d.before.Rules())), "rule"))
		return
	default:
		d.settings()
	}
	d.walk(nil, d.before.Root(), d.after.Root())
}

// settings reports differences in the domain as a whole.
func (d *differ) settings() {
	if d.before.HashTag != d.after.HashTag {
		d.add("", Reset, "hash_tag %s instead of %s: keys move, so on Redis all counts of the domain start from zero",
			orNone(d.after.HashTag), orNone(d.before.HashTag))
	}
	if was, is := d.before.Unmatched, d.after.Unmatched; was != is {
		effect := Changed // decided by the daemon's setting, which may be either
		switch {
		case is == rules.DenyUnmatched:
			effect = Stricter
		case was == rules.DenyUnmatched:
			effect = Looser
		}
		d.add("", effect, "descriptors without a rule: %s; until now %s", is, was)
	}
}

// representative is a value that a bare key stands for: one that no file contains.
const representative = "\x00"

// walk compares what is below two descriptors with the same path. One of them may be nil.
func (d *differ) walk(path []bucket.Entry, before, after *rules.Node) {
	if len(path) > 0 {
		d.descriptor(path, before, after)
	}
	d.order(path, before, after)
	for _, entry := range childrenOf(before, after) {
		d.walk(append(path[:len(path):len(path)], entry), childOf(before, entry), childOf(after, entry))
	}
}

// childrenOf returns the entries of the next level of two descriptors: exact values
// first, then keys with their patterns, in the order of after and then of before.
func childrenOf(before, after *rules.Node) []bucket.Entry {
	var exact, general []bucket.Entry
	seen := make(map[bucket.Entry]bool)
	add := func(to *[]bucket.Entry, n *rules.Node) {
		if e := n.Entry(); !seen[e] {
			seen[e] = true
			*to = append(*to, e)
		}
	}
	for _, n := range []*rules.Node{after, before} {
		if n == nil {
			continue
		}
		for below := range n.AllExact {
			add(&exact, below)
		}
		for k := range n.AllKeys {
			for _, below := range k.CIDRs() {
				add(&general, below)
			}
			for _, below := range k.Patterns() {
				add(&general, below)
			}
			if bare := k.Bare(); bare != nil {
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

// childOf returns the descriptor below n with exactly this entry, as in the file, or nil.
func childOf(n *rules.Node, e bucket.Entry) *rules.Node {
	if n == nil {
		return nil
	}
	if below := n.Exact(e); below != nil {
		return below
	}
	if below := n.WithCIDR(e); below != nil && below.Entry() == e {
		return below
	}
	k := n.Key(e.Key)
	if k == nil {
		return nil
	}
	if e.Value == "" {
		return k.Bare()
	}
	for _, below := range k.Patterns() {
		if below.Entry().Value == e.Value {
			return below
		}
	}
	return nil
}

// descriptor compares what requests with the entries of a path get. A pattern's text
// stands for the values that it matches: whatever covers it matches the text. The first
// prefix of a descriptor stands for its addresses.
func (d *differ) descriptor(path []bucket.Entry, before, after *rules.Node) {
	entries := slices.Clone(path)
	for i := range entries {
		if entries[i].Value == "" {
			entries[i].Value = representative
		}
		entries[i].Value = rules.FirstCIDR(entries[i].Value)
	}
	old, now := d.before.Match(entries), d.after.Match(entries)
	if before != nil {
		old = before.Rule()
	}
	if after != nil {
		now = after.Rule()
	}
	name := rules.PathText(path)
	defer d.below(name, entries, before, after)
	if before != nil && after != nil && !after.HasNetworksOf(before) {
		d.add(name, Reset, "other networks: some addresses match another rule, or are counted by another network, whose count starts from zero")
	}
	switch {
	case before != nil && before.Rule() != nil && after != nil && after.Rule() != nil:
		d.rule(name, old, now)
	case after != nil && after.Rule() != nil: // a new rule
		also := overlapNote(path, d.after, d.before, "had")
		if old == nil {
			d.add(name, ifElse(now.Unlimited, Changed, Stricter), "a new rule, %s; until now no limit%s", brief(now), also)
		} else {
			d.add(name, Matched, "a new rule, %s; until now %s of the rule %s%s", brief(now), brief(old), old.Path(), also)
		}
	case before != nil && before.Rule() != nil: // a rule that is gone
		also := overlapNote(path, d.before, d.after, "have")
		if now == nil {
			d.add(name, ifElse(old.Unlimited, Changed, Looser), "the rule is gone, and there is no limit any more; until now %s%s", brief(old), also)
		} else {
			d.add(name, Matched, "the rule is gone; now %s of the rule %s, until now %s%s", brief(now), now.Path(), brief(old), also)
		}
	case after != nil && before == nil: // without a limit, in the way of one
		also := overlapNote(path, d.after, d.before, "had")
		if old != nil {
			d.add(name, Looser, "a new descriptor without a limit; until now %s of the rule %s%s", brief(old), old.Path(), also)
		} else if also != "" {
			d.add(name, Looser, "a new descriptor without a limit%s", also)
		}
	case before != nil && after == nil:
		also := overlapNote(path, d.before, d.after, "have")
		if now != nil {
			d.add(name, Stricter, "the descriptor without a limit is gone; now %s of the rule %s%s", brief(now), now.Path(), also)
		} else if also != "" {
			d.add(name, Stricter, "the descriptor without a limit is gone%s", also)
		}
	}
}

// below reports a change for descriptors with more entries than one that is new or gone:
// they match below it, or below the next that fits, and never both.
func (d *differ) below(name string, entries []bucket.Entry, before, after *rules.Node) {
	const text = "descriptors with more entries %s matched below %s"
	switch {
	case before == nil:
		if n := find(d.before.Root(), entries); n != nil && n.HasBelow() {
			d.add(name, Matched, text, "are not any more", rules.PathText(n.Entries()))
		}
	case after == nil:
		if n := find(d.after.Root(), entries); n != nil && n.HasBelow() {
			d.add(name, Matched, text, "are now", rules.PathText(n.Entries()))
		}
	}
}

// find returns the descriptor that a caller's entries lead to, or nil.
func find(n *rules.Node, entries []bucket.Entry) *rules.Node {
	for i := 0; i < len(entries) && n != nil; i++ {
		n = n.Next(&entries[i])
	}
	return n
}

// descriptorAt returns the descriptor that entries lead to, spelled as in the file, or
// nil.
func descriptorAt(n *rules.Node, entries []bucket.Entry) *rules.Node {
	for _, e := range entries {
		n = childOf(n, e)
	}
	return n
}

// overlapNote names the patterns at the same level of the other rules that share some,
// but not all, of their values with the pattern at a path: those that come after it, if
// both sides have them.
func overlapNote(path []bucket.Entry, own, others *rules.Domain, have string) string {
	above, entry := path[:len(path)-1], path[len(path)-1]
	level := descriptorAt(others.Root(), above)
	if level == nil || !rules.HasStar(entry.Value) {
		return ""
	}
	k := level.Key(entry.Key)
	if k == nil {
		return ""
	}
	rank := rankOf(descriptorAt(own.Root(), above).Key(entry.Key))
	var names []string
	for _, other := range k.Patterns() {
		place, still := rank[other.Entry().Value]
		if still && place < rank[entry.Value] ||
			rules.Covers(other.Entry().Value, entry.Value) || !rules.Overlap(other.Entry().Value, entry.Value) {
			continue
		}
		names = append(names, yamlfile.Printable(other.Entry().Value))
	}
	if names == nil {
		return ""
	}
	return "; values that also fit " + fewOf(names) + " " + have + " the limits of that one"
}

// rankOf returns the positions of the patterns of a key.
func rankOf(k *rules.Key) map[string]int {
	rank := make(map[string]int)
	if k != nil {
		for i, n := range k.Patterns() {
			rank[n.Entry().Value] = i
		}
	}
	return rank
}

// fewOf returns up to three names.
func fewOf(names []string) string {
	const maxNames = 3
	if len(names) <= maxNames {
		return yamlfile.Commas(names)
	}
	return fmt.Sprintf("%s and %d more", yamlfile.Commas(names[:maxNames]), len(names)-maxNames)
}

// maxPatternsCompared bounds the patterns of one key whose order is compared: each is
// compared with the others.
const maxPatternsCompared = 2000

// order reports where patterns that both sides have match in another order.
func (d *differ) order(path []bucket.Entry, before, after *rules.Node) {
	if before == nil || after == nil {
		return
	}
	for k := range after.AllKeys {
		old := rankOf(before.Key(k.Name()))
		var both []*rules.Node // in the order of after
		for _, n := range k.Patterns() {
			if _, ok := old[n.Entry().Value]; ok {
				both = append(both, n)
			}
		}
		if slices.IsSortedFunc(both, func(a, b *rules.Node) int { return old[a.Entry().Value] - old[b.Entry().Value] }) {
			continue
		}
		if len(both) > maxPatternsCompared {
			d.add(rules.PathText(append(path[:len(path):len(path)], bucket.Entry{Key: k.Name()})), Matched,
				"the order of its %d patterns is another: values that fit several may have other limits than until now", len(both))
			continue
		}
		for j, later := range both {
			for _, first := range both[:j] {
				if old[first.Entry().Value] > old[later.Entry().Value] && rules.Overlap(first.Entry().Value, later.Entry().Value) {
					d.add(rules.PathText(append(path[:len(path):len(path)], first.Entry())), Matched,
						"comes before %s: values that fit both have its limits, %s; until now those of the other, %s",
						yamlfile.Printable(later.Entry().Value), brief(first.Rule()), brief(later.Rule()))
				}
			}
		}
	}
}
