package trace

import (
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// nearEntry says why no descriptor below n matches an entry. Near is the one whose key or value
// differs in case, or in white space or slashes around it; otherwise one whose key is spelt
// almost alike; otherwise the highest of the file that has the key.
func nearEntry(d *rules.Domain, n *rules.Node, e bucket.Entry, looks int) (Miss, *Place) {
	if looks -= n.BelowCount(); looks < 0 {
		return MissedValue, nil
	}
	miss := MissedKey
	var value *rules.Node
	keys := make(map[string]*rules.Node) // the first with each key
	for child := range n.Below {
		at := child.Entry()
		if at.Key == e.Key {
			miss = MissedValue
			if isAlike(at.Value, e.Value) {
				value = firstOf(value, child)
			}
		}
		key := plain(at.Key)
		keys[key] = firstOf(keys[key], child)
	}
	switch {
	case value != nil:
		return MissedValue, placeOf(d, value)
	case miss == MissedValue:
		return miss, nil
	}
	if near := keys[yamlfile.Nearest(plain(e.Key), slices.Sorted(maps.Keys(keys)))]; near != nil {
		return miss, keyPlace(d, near)
	}
	if near := highest(d.Root(), looks, func(n *rules.Node) bool { return n.Entry().Key == e.Key }); near != nil {
		return miss, keyPlace(d, near)
	}
	return miss, nil
}

// keyPlace is the place of a descriptor of whose entry only the key matters.
func keyPlace(d *rules.Domain, n *rules.Node) *Place {
	p, entries := placeOf(d, n), n.Entries()
	entries[len(entries)-1].Value = ""
	p.Path = rules.PathText(entries)
	return p
}

// nearBelow is the place of the highest descriptor below n that has a rule, or nil.
func nearBelow(d *rules.Domain, n *rules.Node, looks int) *Place {
	if found := highest(n, looks, func(n *rules.Node) bool { return n.Rule() != nil }); found != nil {
		return placeOf(d, found)
	}
	return nil
}

// highest returns the highest descriptor below n that is wanted, the first of those of a
// level; nil if there is none, or none above the level that takes too many looks.
func highest(n *rules.Node, looks int, wanted func(*rules.Node) bool) *rules.Node {
	for level := []*rules.Node{n}; len(level) > 0; {
		var found *rules.Node
		var below []*rules.Node
		for _, n := range level {
			if looks -= n.BelowCount(); looks < 0 {
				return nil
			}
			for child := range n.Below {
				if wanted(child) {
					found = firstOf(found, child)
				}
				if child.HasBelow() {
					below = append(below, child)
				}
			}
		}
		if found != nil {
			return found
		}
		level = below
	}
	return nil
}

// firstOf returns which of two descriptors of the file stands first; a may be nil.
func firstOf(a, b *rules.Node) *rules.Node {
	if a == nil || b.Compare(a) < 0 {
		return b
	}
	return a
}

// isAlike reports whether people take two different texts for equal.
func isAlike(a, b string) bool {
	const around = " \t\r\n/"
	a = strings.Trim(a, around)
	return a != "" && strings.EqualFold(a, strings.Trim(b, around))
}

// plain is a key without what people overlook.
func plain(key string) string { return strings.ToLower(strings.TrimSpace(key)) }
