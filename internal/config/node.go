package config

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// node is a descriptor of a limits file.
type node struct {
	up *node
	// entry is as in the file: the value may be a pattern, or empty for a bare
	// key.
	entry bucket.Entry
	// exact and keys lead to the next level.
	exact map[bucket.Entry]*node
	keys  []keyNodes
	// index finds a key among many; it is nil while there are few.
	index map[string]int32
	// rule is what applies to a descriptor that ends here, or nil.
	rule *Rule
	// line is where it begins, or which item of its list it is, from 0, where a
	// program made the list.
	line int32
	// file, of an outermost descriptor, is 0 if it stands in the first file of its
	// domain, else a number from 1 on in Domain.files.
	file int32
}

// keyNodes are the descriptors of one level that have the same key and no
// exact value.
type keyNodes struct {
	key      string
	patterns patterns
	bare     *node
}

func (n *node) next(e *bucket.Entry) *node {
	if len(n.exact) > 0 {
		if next := n.exact[*e]; next != nil {
			return next
		}
	}
	k := n.key(e.Key)
	if k == nil {
		return nil
	}
	if len(k.patterns.nodes) > 0 {
		if i := k.patterns.First(e.Value); i >= 0 {
			return k.patterns.nodes[i]
		}
	}
	return k.bare
}

// fewKeys is the number of keys up to which an index is no faster than comparing
// one after the other.
const fewKeys = 4

func (n *node) key(key string) *keyNodes {
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return &n.keys[i]
		}
		return nil
	}
	for i := range n.keys {
		if n.keys[i].key == key {
			return &n.keys[i]
		}
	}
	return nil
}

// addKey returns the descriptors of a key, none yet if it is new.
func (n *node) addKey(key string) *keyNodes {
	if k := n.key(key); k != nil {
		return k
	}
	n.keys = append(n.keys, keyNodes{key: key})
	if len(n.keys) > fewKeys {
		if n.index == nil {
			n.index = make(map[string]int32)
			for i := range n.keys {
				n.index[n.keys[i].key] = int32(i)
			}
		}
		n.index[key] = int32(len(n.keys) - 1)
	}
	return &n.keys[len(n.keys)-1]
}

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

// add adds a descriptor, or returns the one that has the same entry already.
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

// below calls yield with the descriptors one level below, the exact ones in no
// order.
func (n *node) below(yield func(*node) bool) {
	for _, child := range n.exact {
		if !yield(child) {
			return
		}
	}
	for i := range n.keys {
		for _, child := range n.keys[i].patterns.nodes {
			if !yield(child) {
				return
			}
		}
		if bare := n.keys[i].bare; bare != nil && !yield(bare) {
			return
		}
	}
}

func (n *node) hasRule() bool { return n.rule != nil }

// seal readies the node for matching. Nothing may be added afterwards.
func (n *node) seal() {
	for i := range n.keys {
		n.keys[i].patterns.Seal()
	}
}
