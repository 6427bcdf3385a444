package rules

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// List makes the descriptors of a list reachable from the node above them.
type List struct {
	up *Node
	// patterns are the patterns of the list.
	patterns map[bucket.Entry]*Node
}

// NewList returns an empty List.
func NewList(up *Node) *List { return &List{up: up} }

// AddCIDR adds a descriptor with prefixes. If there is one of them already, it returns its
// index and the descriptor that has it.
func (l *List) AddCIDR(n *Node) (at int, first *Node) { return l.up.addCIDR(n) }

// Add adds another descriptor, or returns the one that already has the same entry.
func (l *List) Add(n *Node) (first *Node) {
	switch {
	case n.IsExact():
		return l.up.addExact(n)
	case n.entry.Value == "":
		return l.up.addBare(n)
	}
	if first := l.patterns[n.entry]; first != nil {
		return first
	}
	if l.patterns == nil {
		l.patterns = make(map[bucket.Entry]*Node)
	}
	l.patterns[n.entry] = n
	k := l.up.addKey(n.entry.Key)
	k.patterns.add(n)
	if n.networks != nil {
		k.readsAddresses()
	}
	return nil
}
