package config

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// unites reports whether second, whose descriptor is o, becomes a part of first,
// which has the same entry. If not, it has said why. It does where envoyproxy/
// ratelimit's format is read leniently, one of them has the limit and the other
// has not, and no more than one has descriptors below it.
func (p *fileParser) unites(first, second *node, o *yamlfile.Object, item yamlfile.Value) bool {
	const allowed = "each key with each value once in a list"
	again := fmt.Sprintf("%s again, the first is on line %d", entryText(second.entry), first.line)
	if p.Made {
		again = fmt.Sprintf("%s again, the first is %s", entryText(second.entry), item.Sibling(int(first.line)))
	}
	limited := p.isLimited(o)
	if limited == (first.rule != nil) || o.Has("descriptors") && first.hasBelow() {
		p.Bad(item, again, allowed)
		return false
	}
	return p.Lax(item, again, allowed, "they are added together, since only one has a limit")
}

func (n *node) hasBelow() bool { return len(n.exact) > 0 || len(n.keys) > 0 }

// unite adds what another node of the same entry has: its rule, or what is below
// it.
func (n *node) unite(other *node) {
	if other.rule != nil {
		n.rule = other.rule
		n.rule.node = n
		n.rule.each(func(r *Rule) { r.node = n })
	}
	if !other.hasBelow() {
		return
	}
	n.exact, n.keys, n.index = other.exact, other.keys, other.index
	for _, below := range n.exact {
		below.up = n
	}
	for i := range n.keys {
		for _, below := range n.keys[i].patterns.nodes {
			below.up = n
		}
		if bare := n.keys[i].bare; bare != nil {
			bare.up = n
		}
	}
}
