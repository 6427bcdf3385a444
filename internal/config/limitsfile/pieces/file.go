package pieces

import (
	"iter"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The nodes of a file take thirty times the memory of its text. So a large file is not
// parsed as a whole: the long lists of descriptors are cut out of it and parsed a few
// items at a time, when their place in the tree is reached. Peak heap while 100,000 rules
// are loaded (BenchmarkLoad, peak-MB), in MB:
//
//	            nested  flat  one line  patterns  JSON  flags
//	in pieces      115    88        88       128    89    110
//	as a whole     371   272       311       326   269    596
//
// The rules are the same either way. A list in block style ends, and each of its items
// begins, at the first character of a line. No scalar and no flow collection is open
// there if the text before it parses by itself: a block scalar or a plain one ends with
// its indentation, and anything else would still be open at the end of the piece, which
// is an error. The same holds for a list in flow style, as in JSON. Its pieces get
// brackets of their own: a piece parses only if it closes everything that it opens. If a
// piece turns out not to be what the cut took it for, and for any syntax error, the file
// is parsed again as a whole.

// File is a large file with its long lists of descriptors cut out.
type File struct {
	*cutter
	root *yaml.Node
	// lists are the lists that were cut out and not read yet.
	lists map[*yaml.Node]cutList
	// torn is set once a piece is not what it was taken for.
	torn bool
}

// Cut cuts the long lists out of a text, whose pieces of the given size in bytes are
// parsed one at a time. It returns nil if the text must be read as a whole.
func Cut(text []byte, size int) *File {
	f := &File{cutter: newCutter(text, size), lists: make(map[*yaml.Node]cutList)}
	if f.cutter == nil {
		return nil
	}
	f.root = f.known(f.cutter.parse(0, f.cutter.lines(), false))
	if f.root == nil || f.root.Kind != yaml.MappingNode || len(f.lists) == 0 {
		return nil
	}
	return f
}

// Root returns the tree of the file, in which the lists that were cut out are empty.
func (f *File) Root() *yaml.Node { return f.root }

// Items returns the items of a list that was cut out, once, or nil for any other list. If
// they end too early, the file IsTorn.
func (f *File) Items(list *yaml.Node) iter.Seq[*yaml.Node] {
	l, ok := f.lists[list]
	if !ok {
		return nil
	}
	delete(f.lists, list)
	return func(yield func(*yaml.Node) bool) {
		for piece, parsed := range f.cutter.parsePieces(l) {
			for _, n := range f.itemsOf(l, piece, parsed) {
				if !yield(n) {
					return
				}
			}
			if f.torn {
				return
			}
		}
	}
}

// IsTorn reports whether a piece was not what it was taken for, so that the file must
// be read as a whole. f may be nil.
func (f *File) IsTorn() bool { return f != nil && f.torn }

// IsRead reports whether all lists were read and were what they were taken for. A list
// that is left was never parsed: it may not even be YAML.
func (f *File) IsRead() bool { return !f.torn && len(f.lists) == 0 }

// part is some lines of a file, parsed, without the long lists in them.
type part struct {
	// root is nil if the lines are not a document.
	root  *yaml.Node
	lists []cutList
}

// parse parses lines of the file without the long lists in them. Items in flow
// style get brackets.
func (c *cutter) parse(from, to int, flow bool) part {
	text, lists := c.cut(from, to)
	if flow {
		text = slices.Concat([]byte("[\n"), text, []byte("\n]"))
		from--
	}
	doc, second, err := yamlfile.DecodeYAML(text)
	if err != nil || doc == nil || second != nil || len(doc.Content) != 1 {
		return part{}
	}
	root := doc.Content[0]
	moveDown(root, from)
	return part{root, lists}
}

// parsePieces parses the pieces of a list. While one is read, the next is parsed on
// another processor.
func (c *cutter) parsePieces(l cutList) iter.Seq2[cutPiece, part] {
	return func(yield func(cutPiece, part) bool) {
		type parsed struct {
			piece cutPiece
			part  part
		}
		ahead, stop := make(chan parsed), make(chan struct{})
		var parser sync.WaitGroup
		defer parser.Wait()
		defer close(stop)
		parser.Go(func() {
			defer close(ahead)
			for piece := range c.pieces(l) {
				select {
				case ahead <- parsed{piece, c.parse(piece.from, piece.to, l.flow)}:
				case <-stop:
					return
				}
			}
		})
		for p := range ahead {
			if !yield(p.piece, p.part) {
				return
			}
		}
	}
}

// known enters the long lists of a part into lists and returns its root, or nil if the
// lines are not a document or not what they were taken for.
func (f *File) known(parsed part) *yaml.Node {
	if parsed.root == nil {
		return nil
	}
	before := len(f.lists)
	f.enterLists(parsed.root, parsed.lists)
	if len(f.lists) != before+len(parsed.lists) {
		return nil
	}
	return parsed.root
}

// moveDown adds to the line of each node.
func moveDown(n *yaml.Node, lines int) {
	n.Line += lines
	for _, below := range n.Content {
		moveDown(below, lines)
	}
}

// enterLists finds the empty lists that stand in for those that were cut out. A list can
// be trusted if only descriptors are above it; one in block style only if everything
// above it is in block style too.
func (f *File) enterLists(n *yaml.Node, lists []cutList) {
	if n.Style&yaml.FlowStyle != 0 {
		lists = slices.DeleteFunc(slices.Clone(lists), func(l cutList) bool { return !l.flow })
	}
	if len(lists) == 0 {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			f.enterLists(item, lists)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k, v := n.Content[i], n.Content[i+1]; k.Kind == yaml.ScalarNode && k.Value == "descriptors" {
				f.enterList(v, lists)
			}
		}
	}
}

func (f *File) enterList(n *yaml.Node, lists []cutList) {
	for _, l := range lists {
		line, column := l.from+1, l.indent+2
		if l.flow {
			line, column = l.from, l.column
		}
		if n.Line != line || n.Column != column || n.Kind != yaml.SequenceNode || len(n.Content) != 0 || n.Style&yaml.FlowStyle == 0 {
			continue
		}
		if !l.flow {
			n.Column, n.Style = l.indent+1, 0
		}
		f.lists[n] = l
		return
	}
	f.enterLists(n, lists)
}

// itemsOf returns the items of a piece of a list. It returns nil, and sets
// torn, if the piece is not what it was taken for.
func (f *File) itemsOf(l cutList, piece cutPiece, parsed part) []*yaml.Node {
	n := f.known(parsed)
	if n == nil || n.Kind != yaml.SequenceNode || len(n.Content) != piece.items || !l.flow && (n.Style&yaml.FlowStyle != 0 || n.Column != l.indent+1) {
		f.torn = true
		return nil
	}
	return n.Content
}
