package rules

import (
	"cmp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

// Node is a node of the tree of a domain's limits: an entry of limits files, with what lies
// below it. The root has no entry.
type Node struct {
	position
	// exact and keys lead to the next level.
	exact map[bucket.Entry]*Node
	keys  []Key
	// index finds a key among many; it is nil while there are few.
	index map[string]int32
	// rule applies to a descriptor that ends here; it may be nil.
	rule *Rule
}

// NewNode returns a descriptor that is not yet reachable from the one above. line is
// where it begins or, if a program made the list, the index of the item, from 0.
func NewNode(up *Node, entry bucket.Entry, line int32) *Node {
	return &Node{position: position{up: &up.position, entry: entry, line: line}}
}

// Entry returns its entry as in the file: the value may be a pattern, or empty for a bare
// key.
func (n *Node) Entry() bucket.Entry { return n.entry }

// Entries returns the entries that lead to it, as in the file.
func (n *Node) Entries() []bucket.Entry { return n.appendEntries(nil) }

// Line returns the line given to NewNode.
func (n *Node) Line() int { return int(n.line) }

// Rule returns the rule for a descriptor that ends here, or nil.
func (n *Node) Rule() *Rule { return n.rule }

// Compare orders the descriptors of a level by position.
func (n *Node) Compare(other *Node) int {
	return cmp.Or(cmp.Compare(n.file, other.file), cmp.Compare(n.line, other.line),
		strings.Compare(n.entry.Key, other.entry.Key), strings.Compare(n.entry.Value, other.entry.Value))
}

// Key holds the descriptors of one level that have the same key and no exact value.
type Key struct {
	name     string
	patterns patterns
	bare     *Node
	// cidrs is nil if no value is read as an address.
	cidrs *cidrs
}

// Name returns the key.
func (k *Key) Name() string { return k.name }

// Patterns returns the descriptors whose values are patterns, in the order in which they
// are tried.
func (k *Key) Patterns() []*Node { return k.patterns.nodes }

// Globs returns the values of Patterns, in the same order.
func (k *Key) Globs() *Globs { return &k.patterns.Globs }

// Bare returns the descriptor without a value, or nil.
func (k *Key) Bare() *Node { return k.bare }

// Next returns the descriptor one level below that a caller's entry matches, or nil.
func (n *Node) Next(e *bucket.Entry) *Node {
	if len(n.exact) > 0 {
		if next := n.exact[*e]; next != nil {
			return next
		}
	}
	k := n.Key(e.Key)
	if k == nil {
		return nil
	}
	if k.cidrs != nil {
		next, _ := k.byAddress(e.Value)
		return next
	}
	return k.byText(e.Value)
}

// nextCounted is Next. It also returns the text by which an address is counted, or "".
func (n *Node) nextCounted(e *bucket.Entry) (next *Node, counted string) {
	if k := n.Key(e.Key); k != nil && k.cidrs != nil && n.exact[*e] == nil {
		return k.byAddress(e.Value)
	}
	return n.Next(e), ""
}

// byAddress returns the descriptor that a value matches as an address, or as a text, or nil,
// and the text by which an address is counted, or "".
func (k *Key) byAddress(value string) (next *Node, counted string) {
	address, ok := network.Parse(value)
	if !ok {
		return k.byText(value), ""
	}
	prefix, next, ok := k.cidrs.table.LookupPrefixLPM(address)
	if !ok {
		next = k.byText(value)
	}
	if next == nil || next.networks == nil {
		return next, ""
	}
	return next, next.networks.counted(value, address, prefix)
}

// byText returns the descriptor that a value matches as a text, or nil.
func (k *Key) byText(value string) *Node {
	if len(k.patterns.nodes) > 0 {
		if i := k.patterns.First(value); i >= 0 {
			return k.patterns.nodes[i]
		}
	}
	return k.bare
}

// fewKeys is the number of keys up to which an index is no faster than comparing them one
// by one.
const fewKeys = 4

// Key returns the descriptors one level below with the key and no exact value, or nil.
func (n *Node) Key(key string) *Key {
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return &n.keys[i]
		}
		return nil
	}
	for i := range n.keys {
		if n.keys[i].name == key {
			return &n.keys[i]
		}
	}
	return nil
}

// addKey returns the descriptors of a key, initially none if it is new.
func (n *Node) addKey(key string) *Key {
	if k := n.Key(key); k != nil {
		return k
	}
	n.keys = append(n.keys, Key{name: key})
	if len(n.keys) > fewKeys {
		if n.index == nil {
			n.index = make(map[string]int32)
			for i := range n.keys {
				n.index[n.keys[i].name] = int32(i)
			}
		}
		n.index[key] = int32(len(n.keys) - 1)
	}
	return &n.keys[len(n.keys)-1]
}

// patterns are the descriptors of one key at one level whose values are patterns,
// in file order.
type patterns struct {
	Globs
	nodes []*Node // of the patterns of Globs, in their order
}

func (l *patterns) add(n *Node) {
	l.Add(n.entry.Value)
	l.nodes = append(l.nodes, n)
}

// IsExact reports whether its value is matched exactly.
func (n *Node) IsExact() bool {
	return n.entry.Value != "" && !HasStar(n.entry.Value) && !n.networks.isCIDR()
}

func (n *Node) addExact(below *Node) (first *Node) {
	if first := n.exact[below.entry]; first != nil {
		return first
	}
	if first := n.WithCIDR(below.entry); first != nil {
		return first
	}
	if n.exact == nil {
		n.exact = make(map[bucket.Entry]*Node)
	}
	n.exact[below.entry] = below
	return nil
}

func (n *Node) addBare(below *Node) (first *Node) {
	k := n.addKey(below.entry.Key)
	if k.bare == nil {
		k.bare = below
		if below.networks != nil {
			k.readsAddresses()
		}
		return nil
	}
	return k.bare
}

// Exact returns the descriptor one level below with this exact entry, or nil.
func (n *Node) Exact(e bucket.Entry) *Node { return n.exact[e] }

// AllExact calls yield with the descriptors one level below that have an exact value,
// in no order.
func (n *Node) AllExact(yield func(*Node) bool) {
	for _, child := range n.exact {
		if !yield(child) {
			return
		}
	}
}

// AllKeys calls yield with the other descriptors one level below, by their keys.
func (n *Node) AllKeys(yield func(*Key) bool) {
	for i := range n.keys {
		if !yield(&n.keys[i]) {
			return
		}
	}
}

// HasBelow reports whether there are descriptors below.
func (n *Node) HasBelow() bool { return len(n.exact) > 0 || len(n.keys) > 0 }

// BelowCount returns how many descriptors are one level below.
func (n *Node) BelowCount() int {
	count := len(n.exact)
	for i := range n.keys {
		count += len(n.keys[i].CIDRs()) + len(n.keys[i].patterns.nodes)
		if n.keys[i].bare != nil {
			count++
		}
	}
	return count
}

// Below calls yield with the descriptors one level below, the exact ones in no
// order.
func (n *Node) Below(yield func(*Node) bool) {
	for _, child := range n.exact {
		if !yield(child) {
			return
		}
	}
	for i := range n.keys {
		for _, child := range n.keys[i].CIDRs() {
			if !yield(child) {
				return
			}
		}
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

// setRule gives the descriptor a rule.
func (n *Node) setRule(r *Rule) {
	n.rule = r
	r.position = &n.position
	r.Each(func(each *Rule) { each.position = &n.position })
}

// Unite adds what another node with the same entry has: its rule, or what is below it.
func (n *Node) Unite(other *Node) {
	if other.rule != nil {
		n.setRule(other.rule)
	}
	if !other.HasBelow() {
		return
	}
	n.exact, n.keys, n.index = other.exact, other.keys, other.index
	for _, below := range n.exact {
		below.up = &n.position
	}
	for i := range n.keys {
		for _, below := range n.keys[i].CIDRs() {
			below.up = &n.position
		}
		for _, below := range n.keys[i].patterns.nodes {
			below.up = &n.position
		}
		if bare := n.keys[i].bare; bare != nil {
			bare.up = &n.position
		}
	}
}

// moveBelow moves what is below the descriptor to another, and calls again for each
// descriptor whose entry the other already has, in first.
func (n *Node) moveBelow(to *Node, again func(n, first *Node)) {
	report := func(below, first *Node) {
		if first != nil {
			again(below, first)
		}
	}
	for _, below := range n.exact {
		report(below, to.addExact(below))
	}
	for i := range n.keys {
		from := &n.keys[i]
		k := to.addKey(from.name)
		for _, below := range from.CIDRs() {
			_, first := to.addCIDR(below)
			report(below, first)
		}
		if from.cidrs != nil {
			k.readsAddresses()
		}
		known := make(map[bucket.Entry]*Node, len(k.patterns.nodes))
		for _, below := range k.patterns.nodes {
			known[below.entry] = below
		}
		for _, below := range from.patterns.nodes {
			first := known[below.entry]
			if first == nil {
				k.patterns.add(below)
			}
			report(below, first)
		}
		if from.bare != nil {
			report(from.bare, to.addBare(from.bare))
		}
	}
	*n = Node{} // what was below still points up to it
}
