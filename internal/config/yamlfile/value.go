package yamlfile

import (
	"fmt"
	"iter"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is a node of a document and the path that leads to it. The node is as written;
// Reader.Follow resolves aliases.
type Value struct {
	Node *yaml.Node
	Path Path
}

// Root returns the value at the top of a document.
func Root(n *yaml.Node) Value { return Value{Node: n} }

// Child returns the value n under a key of the mapping v.
func (v Value) Child(name string, n *yaml.Node) Value {
	up := v.Path
	return Value{n, Path{up: &up, name: name}}
}

// Item returns the value n, which is an item of the list v.
func (v Value) Item(i int, n *yaml.Node) Value {
	up := v.Path
	return Value{n, Path{up: &up, index: i}}
}

// At returns another node that is reported with the path of v, such as a key.
func (v Value) At(n *yaml.Node) Value { return Value{n, v.Path} }

// Sibling returns the path of another item of the list that contains v.
func (v Value) Sibling(i int) *Path { return &Path{up: v.Path.up, index: i} }

// Index returns which item of its list v is.
func (v Value) Index() int { return v.Path.index }

// Position returns where v is. Unlike v it does not keep the node in memory.
func (v Value) Position() Position {
	path := v.Path
	return Position{Line: v.Node.Line, Column: v.Node.Column, Path: &path}
}

// Later returns whichever of two values is further down in the file.
func Later(a, b Value) Value {
	if a.Node.Line > b.Node.Line || a.Node.Line == b.Node.Line && a.Node.Column > b.Node.Column {
		return a
	}
	return b
}

// List holds the items of a list.
type List struct {
	items []*yaml.Node
	path  *Path
}

// List reads a list. If v is not one, it reports that and returns false.
func (w *Reader) List(v Value, of string) (List, bool) {
	target := w.Follow(v)
	if w.Spent() {
		return List{}, false
	}
	if target.Kind != yaml.SequenceNode {
		w.Bad(v, DescribeNode(target), "a list of "+of)
		return List{}, false
	}
	path := v.Path
	return List{target.Content, &path}, true
}

// Len returns the number of items.
func (l List) Len() int { return len(l.items) }

// All yields the items.
func (l List) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for i, item := range l.items {
			if !yield(Value{item, Path{up: l.path, index: i}}) {
				return
			}
		}
	}
}

// Position is a place in a file.
type Position struct {
	Line, Column int
	Path         *Path
}

// Path leads from the top of a document to a value. The zero Path is the top.
type Path struct {
	up    *Path
	name  string
	index int // used if name is empty
}

// String returns the path as descriptors[2].rate_limit.period
func (p *Path) String() string {
	var steps []*Path
	for ; p != nil && p.up != nil; p = p.up {
		steps = append(steps, p)
	}
	var s strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		switch {
		case steps[i].name == "":
			fmt.Fprintf(&s, "[%d]", steps[i].index)
		case s.Len() > 0:
			s.WriteString("." + steps[i].name)
		default:
			s.WriteString(steps[i].name)
		}
	}
	return s.String()
}
