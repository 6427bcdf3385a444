package config

import (
	"bytes"
	"iter"
	"slices"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The nodes of a file take thirty times the memory of its text. So a large
// file is not parsed as a whole: the long lists of descriptors are cut out of
// it, and parsed some items at a time when their place in the tree is reached.
//
// What comes out is the same. A list in block style ends, and each of its
// items begins, at the first character of a line, where no scalar and no flow
// collection can be open if what stands before it parses by itself: a block
// scalar or a plain one ends with its indentation, and anything else would
// still be open at the end of the piece, which is an error. So it is for a list
// in flow style, as in JSON, of which pieces get brackets of their own: they
// are parsed only if all that a piece opens is closed in it. Wherever a piece is
// not what the cut took it for, and for all errors of syntax, the file is
// parsed again as a whole.

// pieceSize is how many bytes of text are parsed at a time. A piece has more
// if one item has.
const pieceSize = 64 << 10

// cutter cuts lists of descriptors out of a text.
type cutter struct {
	text []byte
	// starts are where the lines begin, and the end of the text.
	starts []int32
	size   int
}

// cutList is a list: its lines, the last one excluded, and how many spaces
// stand before its items. One in flow style has its brackets on other lines.
type cutList struct {
	from, to, indent int
	flow             bool
	// column is that of the opening bracket, which ends the line before.
	column int
}

// isEven reports whether lines and pieces of a text can be told apart: breaks
// of lines are LF or CRLF, tabs do not indent, and there are no anchors, for an
// alias may stand in another piece.
func isEven(text []byte) bool {
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(text, []byte(end)) {
			return false
		}
	}
	return never(text, '\r', func(before, after []byte) bool { return !bytes.HasPrefix(after, []byte("\n")) }) &&
		never(text, '\t', func(before, _ []byte) bool {
			rest := bytes.TrimRight(before, " ")
			return len(rest) == 0 || rest[len(rest)-1] == '\n'
		}) &&
		never(text, '&', func(before, after []byte) bool {
			begins := len(before) == 0 || bytes.IndexByte([]byte(" \t\n[]{},:\"'"), before[len(before)-1]) >= 0
			return begins && len(after) > 0 && bytes.IndexByte([]byte(" \t\r\n"), after[0]) < 0
		})
}

// never reports whether no place of c in a text is one by what stands before
// and after it.
func never(text []byte, c byte, is func(before, after []byte) bool) bool {
	for i := 0; ; i++ {
		n := bytes.IndexByte(text[i:], c)
		if n < 0 {
			return true
		}
		if i += n; is(text[:i], text[i+1:]) {
			return false
		}
	}
}

// newCutter returns nil if the text is better parsed as a whole, in pieces of
// the given size.
func newCutter(text []byte, size int) *cutter {
	if len(text) < 2*size || !isEven(text) {
		return nil
	}
	c := &cutter{text: text, size: size, starts: make([]int32, 1, bytes.Count(text, []byte("\n"))+2)}
	for i := 0; i < len(text); {
		n := bytes.IndexByte(text[i:], '\n') + 1
		if n == 0 {
			n = len(text) - i
		}
		i += n
		c.starts = append(c.starts, int32(i))
	}
	return c
}

func (c *cutter) lines() int { return len(c.starts) - 1 }

// span returns the text of lines.
func (c *cutter) span(from, to int) []byte { return c.text[c.starts[from]:c.starts[to]] }

// line returns a line from its first character that is no space on, and how
// many spaces stand before that.
func (c *cutter) line(i int) (rest []byte, indent int) {
	line := bytes.TrimRight(c.span(i, i+1), "\r\n")
	rest = bytes.TrimLeft(line, " ")
	return rest, len(line) - len(rest)
}

// isItem reports whether a line begins an item of a list in block style.
func isItem(rest []byte) bool {
	return len(rest) > 0 && rest[0] == '-' && (len(rest) == 1 || rest[1] == ' ')
}

// next returns the first line from i on that is not blank, or to.
func (c *cutter) next(i, to int) int {
	for ; i < to; i++ {
		if rest, _ := c.line(i); !yamlfile.IsBlank(rest) {
			break
		}
	}
	return i
}

// list returns the list of descriptors whose key stands on a line, if there is
// one in block style. It may end at to.
func (c *cutter) list(key, to int) (cutList, bool) {
	rest, column := c.line(key)
	for isItem(rest) {
		trimmed := bytes.TrimLeft(rest[1:], " ")
		column += len(rest) - len(trimmed)
		rest = trimmed
	}
	if line := bytes.TrimRight(c.span(key, key+1), " \r\n"); bytes.HasSuffix(line, []byte(`descriptors": [`)) || bytes.HasSuffix(line, []byte("descriptors: [")) {
		l, ok := c.flowList(key+1, to)
		l.column = utf8.RuneCount(line)
		return l, ok
	}
	rest, ok := bytes.CutPrefix(rest, []byte("descriptors:"))
	if rest = bytes.TrimLeft(rest, " "); !ok || !yamlfile.IsBlank(rest) {
		return cutList{}, false
	}
	l := cutList{from: c.next(key+1, to)}
	if l.from == to {
		return cutList{}, false
	}
	if rest, l.indent = c.line(l.from); !isItem(rest) || l.indent < column {
		return cutList{}, false
	}
	for l.to = c.next(l.from+1, to); l.to < to; l.to = c.next(l.to+1, to) {
		if rest, indent := c.line(l.to); indent < l.indent || indent == l.indent && !isItem(rest) {
			return l, indent <= column
		}
	}
	return l, true
}

// flowList returns the list in flow style that begins on a line, if its items
// are mappings with their braces at the same distance from the left.
func (c *cutter) flowList(from, to int) (cutList, bool) {
	if from == to {
		return cutList{}, false
	}
	rest, indent := c.line(from)
	if len(rest) == 0 || rest[0] != '{' {
		return cutList{}, false
	}
	for end := from + 1; end < to; end++ {
		rest, n := c.line(end)
		switch {
		case len(rest) == 0:
		case n < indent || n == indent && rest[0] == ']':
			// A comment might hide what stands between two items.
			ok := rest[0] == ']' && bytes.IndexByte(c.span(from, end), '#') < 0
			return cutList{from: from, to: end, indent: indent, flow: true}, ok
		}
	}
	return cutList{}, false
}

// begins reports whether a line begins an item of the list at which it can be
// cut.
func (c *cutter) begins(l cutList, i int) (item, cut bool) {
	rest, indent := c.line(i)
	switch {
	case indent != l.indent:
		return false, false
	case !l.flow:
		item = isItem(rest)
		return item, item
	}
	before := bytes.TrimSpace(c.span(max(l.from, i-1), i))
	item = len(rest) > 0 && rest[0] == '{'
	return item, item && bytes.HasSuffix(before, []byte(","))
}

// cut returns the text of lines without the long lists of descriptors in it,
// and these lists. An empty list stands in the place of each, and as many
// lines as before.
func (c *cutter) cut(from, to int) (text []byte, lists []cutList) {
	whole := from // where what was not copied begins
	for i := from; i < to; {
		l, ok := c.list(i, to)
		if !ok {
			i++
			continue
		}
		i = l.to
		if len(c.span(l.from, l.to)) <= c.size {
			continue
		}
		text = append(text, c.span(whole, l.from)...)
		if !l.flow {
			text = append(text, bytes.Repeat([]byte(" "), l.indent+1)...)
			text = append(text, "[]"...)
		}
		text = append(text, bytes.Repeat([]byte("\n"), l.to-l.from)...)
		lists, whole = append(lists, l), l.to
	}
	if lists == nil {
		return c.span(from, to), nil
	}
	return append(text, c.span(whole, to)...), lists
}

// cutPiece is some items of a list: their lines, and how many they are.
type cutPiece struct{ from, to, items int }

// pieces cuts a list.
func (c *cutter) pieces(l cutList) iter.Seq[cutPiece] {
	return func(yield func(cutPiece) bool) {
		p := cutPiece{from: l.from}
		for p.to = l.from; p.to < l.to; p.to++ {
			item, cut := c.begins(l, p.to)
			if !item {
				continue
			}
			if cut && len(c.span(p.from, p.to)) >= c.size {
				if !yield(p) {
					return
				}
				p = cutPiece{from: p.to, to: p.to}
			}
			p.items++
		}
		yield(p)
	}
}

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
	// What is left is not even known to be YAML.
	return !p.torn && len(p.cutLists) == 0
}

// part is some lines of a file, parsed, but for the long lists in it.
type part struct {
	// root is nil if the lines are no document.
	root  *yaml.Node
	lists []cutList
}

// parse parses lines of the file, but for the long lists in it. Items in flow
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

// enterLists finds the empty lists that stand for others. They can be trusted
// where they are below descriptors and nothing else, and one in block style
// where all above it is too.
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
// torn, if that is not what it was taken for.
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
