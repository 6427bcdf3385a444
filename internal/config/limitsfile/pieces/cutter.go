package pieces

import (
	"bytes"
	"iter"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Size is how many bytes of text are parsed at a time. A piece is larger if a single item
// is.
const Size = 64 << 10

// cutter cuts lists of descriptors out of a text.
type cutter struct {
	text []byte
	// starts are the offsets at which lines begin, and the end of the text.
	starts []int32
	size   int
}

// cutList is a list: its lines, without the last one, and how many spaces precede its
// items. One in flow style has its brackets on other lines.
type cutList struct {
	from, to, indent int
	flow             bool
	// column is the column of the opening bracket, which ends the line before.
	column int
}

// isEven reports whether lines and pieces of a text can be told apart: line breaks are LF
// or CRLF, nothing is indented with tabs, and there are no anchors, since an alias may be
// in another piece.
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

// never reports whether no occurrence of c in a text satisfies is, judging by what
// precedes and follows it.
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

// newCutter returns nil if the text is better parsed as a whole than in pieces of the
// given size.
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

// line returns a line without its leading spaces, and their number.
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

// list returns the block style list of descriptors whose key is on a line, if there is
// one. It may end at to.
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

// flowList returns the flow style list that begins on a line, if its items are mappings
// with their braces at the same column.
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
			// A comment might hide the text between two items.
			ok := rest[0] == ']' && bytes.IndexByte(c.span(from, end), '#') < 0
			return cutList{from: from, to: end, indent: indent, flow: true}, ok
		}
	}
	return cutList{}, false
}

// begins reports whether a line begins an item of the list, and whether the list can be
// cut there.
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

// cut returns the text of lines without the long lists of descriptors in it, and these
// lists. Each is replaced by an empty list with as many empty lines as it had, so that
// line numbers stay the same.
func (c *cutter) cut(from, to int) (text []byte, lists []cutList) {
	whole := from // where the part not yet copied begins
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

// cutPiece is some items of a list: their lines, and their number.
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
