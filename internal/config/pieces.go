package config

import (
	"iter"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The nodes of a file take thirty times the memory of its text. So a large file
// is not parsed as a whole: the long lists of descriptors are cut out of it, and
// parsed some items at a time when their place in the tree is reached. The peak
// of the heap while 100,000 rules are loaded (BenchmarkLoad, peak-MB), in MB:
//
//	            nested  flat  one line  patterns  JSON  flags
//	in pieces      115    88        88       128    89    110
//	as a whole     371   272       311       326   269    596
//
// The rules are the same either way. A list in block style ends, and each of its
// items begins, at the first character of a line. No scalar and no flow
// collection is open there if the text before it parses by itself: a block scalar
// or a plain one ends with its indentation, and anything else would still be open
// at the end of the piece, which is an error. The same holds for a list in flow
// style, as in JSON. Its pieces get brackets of their own: a piece parses only if
// it closes everything that it opens. Wherever a piece is not what the cut took
// it for, and for all errors of syntax, the file is parsed again as a whole.

// inPieces reads a large file in pieces. It returns false if the file must be
// read as a whole, by another parser.
func (p *fileParser) inPieces(text []byte) bool {
	p.cutter = newCutter(text, p.loader.pieceSize)
	if p.cutter == nil {
		return false
	}
	p.cutLists = make(map[*yaml.Node]cutList)
	root := p.known(p.cutter.parse(0, p.cutter.lines(), false))
	if root == nil || root.Kind != yaml.MappingNode || len(p.cutLists) == 0 {
		return false
	}
	p.domain(yamlfile.Root(root))
	// A list that is left was never parsed. It may not even be YAML.
	return !p.torn && len(p.cutLists) == 0
}

// part is some lines of a file, parsed, without the long lists in them.
type part struct {
	// root is nil if the lines are no document.
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

// parsePieces parses the pieces of a list. While one is read the next is parsed
// on another processor.
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

// known enters the long lists of a part into cutLists and returns its root, or
// nil if the lines are no document, or are not what they were taken for.
func (p *fileParser) known(parsed part) *yaml.Node {
	if parsed.root == nil {
		return nil
	}
	before := len(p.cutLists)
	p.enterLists(parsed.root, parsed.lists)
	if len(p.cutLists) != before+len(parsed.lists) {
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

// enterLists finds the empty lists that stand for those that were cut out. A list
// can be trusted if it is below descriptors and nothing else; one in block style
// only if everything above it is in block style too.
func (p *fileParser) enterLists(n *yaml.Node, lists []cutList) {
	if n.Style&yaml.FlowStyle != 0 {
		lists = slices.DeleteFunc(slices.Clone(lists), func(l cutList) bool { return !l.flow })
	}
	if len(lists) == 0 {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			p.enterLists(item, lists)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k, v := n.Content[i], n.Content[i+1]; k.Kind == yaml.ScalarNode && k.Value == "descriptors" {
				p.enterList(v, lists)
			}
		}
	}
}

func (p *fileParser) enterList(n *yaml.Node, lists []cutList) {
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
		p.cutLists[n] = l
		return
	}
	p.enterLists(n, lists)
}

// pieceItems returns the items of a piece of a list. It returns nil, and sets
// torn, if the piece is not what it was taken for.
func (p *fileParser) pieceItems(l cutList, piece cutPiece, parsed part) []*yaml.Node {
	n := p.known(parsed)
	if n == nil || n.Kind != yaml.SequenceNode || len(n.Content) != piece.items || !l.flow && (n.Style&yaml.FlowStyle != 0 || n.Column != l.indent+1) {
		p.torn = true
		return nil
	}
	return n.Content
}

// itemsOf yields the items of a list of descriptors.
func (p *fileParser) itemsOf(v yamlfile.Value) iter.Seq[yamlfile.Value] {
	if p.items != nil {
		if made := p.items(v.Node); made != nil {
			return madeItems(v, made)
		}
	}
	l, ok := p.cutLists[v.Node]
	if !ok {
		items, _ := p.List(v, "descriptors")
		return items.All()
	}
	delete(p.cutLists, v.Node)
	return func(yield func(yamlfile.Value) bool) {
		i := 0
		for piece, parsed := range p.cutter.parsePieces(l) {
			for _, n := range p.pieceItems(l, piece, parsed) {
				if !yield(v.Item(i, n)) {
					return
				}
				i++
			}
			if p.torn {
				return
			}
		}
	}
}

// madeItems yields the items of a list that is made while it is read.
func madeItems(v yamlfile.Value, made iter.Seq[*yaml.Node]) iter.Seq[yamlfile.Value] {
	return func(yield func(yamlfile.Value) bool) {
		i := 0
		for n := range made {
			if !yield(v.Item(i, n)) {
				return
			}
			i++
		}
	}
}
