package config

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// nodeList makes the descriptors of a list reachable from the node above them.
type nodeList struct {
	up *node
	// patterns are those of the list.
	patterns map[bucket.Entry]*node
	// general are the descriptors without an exact value, in order.
	general []generalNode
}

// generalNode is a descriptor without an exact value, and where it stands.
type generalNode struct {
	*node
	at yamlfile.Position
}

// add adds a descriptor, or returns the one that has the same entry.
func (l *nodeList) add(n *node, item yamlfile.Value) (first *node) {
	if n.isExact() {
		return l.up.addExact(n)
	}
	if n.entry.Value != "" {
		if first := l.patterns[n.entry]; first != nil {
			return first
		}
		if l.patterns == nil {
			l.patterns = make(map[bucket.Entry]*node)
		}
		l.patterns[n.entry] = n
		k := l.up.addKey(n.entry.Key)
		k.patterns.add(n)
	} else if first := l.up.addBare(n); first != nil {
		return first
	}
	l.general = append(l.general, generalNode{n, item.Position()})
	return nil
}

// patterns are the descriptors of one key at one level whose values are patterns,
// in file order.
type patterns struct {
	glob.Set
	nodes []*node // of the patterns of Set, in their order
}

func (l *patterns) add(n *node) {
	l.Add(n.entry.Value)
	l.nodes = append(l.nodes, n)
}

func (n *node) isExact() bool { return n.entry.Value != "" && !glob.HasStar(n.entry.Value) }

func (n *node) addExact(below *node) (first *node) {
	if first := n.exact[below.entry]; first != nil {
		return first
	}
	if n.exact == nil {
		n.exact = make(map[bucket.Entry]*node)
	}
	n.exact[below.entry] = below
	return nil
}

func (n *node) addBare(below *node) (first *node) {
	k := n.addKey(below.entry.Key)
	if k.bare == nil {
		k.bare = below
		return nil
	}
	return k.bare
}

// seal readies the node for matching. Nothing may be added afterwards.
func (n *node) seal() {
	for i := range n.keys {
		n.keys[i].patterns.Seal()
	}
}
