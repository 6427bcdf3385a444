package yamlfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Utf8 returns what a file holds as UTF-8 without a mark at its beginning, or
// an Error without a file.
func (w *Reader) Utf8(data []byte) ([]byte, *Error) {
	if text, ok := fromUTF16(data); ok && w.Lenient {
		w.WarnAt(Position{1, 1, nil}, "found UTF-16; it is read as it is")
		data = text
	}
	if err := CheckText(data); err != nil {
		return nil, err
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

// fromUTF16 returns a text of whole UTF-16 characters, which begins with a
// mark, as UTF-8.
func fromUTF16(data []byte) ([]byte, bool) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return nil, false
	}
	var text []byte
	for data = data[2:]; len(data) >= 2; {
		r := rune(order.Uint16(data))
		data = data[2:]
		if utf16.IsSurrogate(r) {
			if len(data) < 2 {
				return nil, false
			}
			if r = utf16.DecodeRune(r, rune(order.Uint16(data))); r == utf8.RuneError {
				return nil, false
			}
			data = data[2:]
		}
		text = utf8.AppendRune(text, r)
	}
	return text, len(data) == 0
}

// ParseYAML parses the one document of a text. It returns nil for one that
// holds none, and an Error without a file for one that is no such document;
// both where more follows the document.
func (w *Reader) ParseYAML(data []byte) (*yaml.Node, *Error) {
	doc, second, err := DecodeYAML(data)
	if err != nil && doc != nil && w.Lenient {
		// Nobody reads beyond the first document, wrong as it may be.
		e := SyntaxError(data, err)
		w.WarnAt(Position{e.Line, e.Column, nil}, "found more after the first document; it is ignored")
		err = nil
	}
	switch {
	case err != nil:
		return nil, SyntaxError(data, err)
	case second == nil && (doc == nil || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" && doc.Content[0].Kind == yaml.ScalarNode):
		return nil, nil
	}
	if bytes.IndexByte(data, '&') >= 0 {
		if err := findCycle(doc, make(map[*yaml.Node]bool)); err != nil {
			return nil, err
		}
	}
	if second != nil && w.Lenient {
		w.Warn(second, nil, "found a second document; it and those after it are ignored")
		second = nil
	}
	if second != nil {
		err := &Error{
			Line: second.Line, Column: second.Column,
			Found: "a second document", Allowed: "one document in a file",
		}
		if len(doc.Content) == 0 {
			return nil, err
		}
		return doc.Content[0], err
	}
	return doc.Content[0], nil
}

// CheckText finds what the YAML reader would refuse without saying where.
func CheckText(data []byte) *Error {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return &Error{Line: 1, Column: 1, Found: "UTF-16", Allowed: "UTF-8"}
	}
	line, start := 1, 0
	for i := 0; i < len(data); {
		if c := data[i]; c >= ' ' && c < 0x7f || c == '\t' || c == '\r' {
			i++
			continue
		} else if c == '\n' {
			i++
			line, start = line+1, i
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		column := utf8.RuneCount(data[start:i]) + 1
		switch {
		case r == utf8.RuneError && size == 1:
			return &Error{Line: line, Column: column, Found: fmt.Sprintf("the byte 0x%02x, which is not UTF-8", data[i]), Allowed: "UTF-8"}
		case r < ' ' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff || r == 0xfeff && i > 0:
			return &Error{Line: line, Column: column, Found: fmt.Sprintf("the character U+%04X", r), Allowed: "text; other characters stand as \\x or \\u escapes in double quotes"}
		}
		i += size
	}
	return nil
}

// DecodeYAML returns the first document of data, and the second if there is
// one. With an error it returns the first if that is good.
func DecodeYAML(data []byte) (doc, second *yaml.Node, err error) {
	defer func() {
		// The parser panics at what its authors hold to be impossible; an
		// odd file must not end the daemon if they were wrong.
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: %v", v)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	doc = new(yaml.Node)
	if err := dec.Decode(doc); errors.Is(err, io.EOF) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	second = new(yaml.Node)
	if err := dec.Decode(second); errors.Is(err, io.EOF) {
		return doc, nil, nil
	} else if err != nil {
		return doc, nil, err
	}
	return doc, second, nil
}

// yamlErrorText is how the parser words its errors.
var yamlErrorText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// SyntaxError tells where the parser failed. Its own line is often that of an
// earlier token, or missing; the line that matters is the first with which the
// parser fails as it does with all.
func SyntaxError(data []byte, err error) *Error {
	const largest = 1 << 20 // of a larger file each try takes too long
	parts := yamlErrorText.FindStringSubmatch(err.Error())
	if parts == nil {
		return &Error{Line: 1, Column: 1, Found: "no YAML: " + err.Error()}
	}
	line, _ := strconv.Atoi(parts[1])
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(data) <= largest {
		ends := make([]int, len(lines))
		end := 0
		for i := range lines {
			end += len(lines[i])
			ends[i] = end
		}
		i, _ := slices.BinarySearchFunc(ends, true, func(end int, _ bool) int {
			if _, _, e := DecodeYAML(data[:end]); e != nil && e.Error() == err.Error() {
				return 0
			}
			return -1
		})
		line = i + 1
	}
	line = min(max(line, 1), len(lines))
	column := 1 + len(lines[line-1]) - len(bytes.TrimLeft(lines[line-1], " \t"))
	const most = 1000 // lines that a mistake is looked for in
	first := max(line-most, 0)
	var texts []string
	for _, l := range lines[first:line] {
		texts = append(texts, strings.TrimRight(string(l), "\r\n"))
	}
	if s := findSlip(texts, len(texts)-1, parts[2]); s != nil {
		return &Error{Line: first + s.line + 1, Column: s.column(texts), Found: s.found, Allowed: s.allowed}
	}
	said := parts[2]
	if strings.HasPrefix(said, "unknown anchor") {
		said = "an alias without its anchor" // whose name may be a password
	}
	return &Error{Line: line, Column: column, Found: "no YAML: " + said}
}

// findCycle finds an alias inside its own anchor. Aliases to what stands
// complete before them cannot form a cycle.
func findCycle(n *yaml.Node, above map[*yaml.Node]bool) *Error {
	if n.Kind == yaml.AliasNode && above[n.Alias] {
		return &Error{Line: n.Line, Column: n.Column, Found: "*" + n.Value + " inside its own anchor", Allowed: "an alias after what it names"}
	}
	if n.Anchor != "" {
		above[n] = true
		defer delete(above, n)
	}
	for _, c := range n.Content {
		if err := findCycle(c, above); err != nil {
			return err
		}
	}
	return nil
}

// Path is where the reader stands in a file.
type Path struct {
	up    *Path
	name  string
	index int // counts if name is empty
}

func (p *Path) Key(name string) *Path { return &Path{up: p, name: name} }
func (p *Path) Item(i int) *Path      { return &Path{up: p, index: i} }

// String returns the path as descriptors[2].rate_limit.period
func (p *Path) String() string {
	var steps []*Path
	for ; p != nil; p = p.up {
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

// Position is a place in a file.
type Position struct {
	Line, Column int
	Path         *Path
}

func NodeAt(n *yaml.Node, p *Path) Position { return Position{n.Line, n.Column, p} }

// Reader walks the nodes of one file and gathers what is wrong with them.
type Reader struct {
	File string
	// levels are those that keys may be meant for which stand elsewhere.
	levels []*Level
	// Lenient makes warnings of what envoyproxy/ratelimit accepts.
	Lenient  bool
	Errs     Errors
	Warnings []Warning

	// told holds what was already reported: a mistake behind an anchor is one
	// mistake, however many aliases lead to it.
	told map[finding]bool
	// free are objects to use again.
	free []*Object
	// left is how many nodes may still be visited, aliases followed. It stops
	// files whose aliases multiply.
	left int
}

type finding struct {
	line, column int
	text         string
}

// maxAliasVisits is how many nodes may be visited beyond those of the file.
const maxAliasVisits = 1_000_000

func NewReader(file string, size int, levels ...*Level) *Reader {
	return &Reader{File: file, levels: levels, told: make(map[finding]bool), left: size + maxAliasVisits}
}

// Bad reports what was found at n, which stands at p.
func (w *Reader) Bad(n *yaml.Node, p *Path, found, allowed string) {
	w.BadAt(NodeAt(n, p), found, allowed)
}

func (w *Reader) BadAt(at Position, found, allowed string) {
	if w.first(at, found) {
		w.Errs = append(w.Errs, Error{w.File, at.Line, at.Column, at.Path.String(), found, allowed})
	}
}

// Lax reports what was found at n and envoyproxy/ratelimit accepts: as bad does
// or, if lenient, as a warning that says what is made of it. It returns whether
// it is accepted.
func (w *Reader) Lax(n *yaml.Node, p *Path, found, allowed, made string) bool {
	if !w.Lenient {
		w.Bad(n, p, found, allowed)
		return false
	}
	w.Warn(n, p, "found %s; %s", found, made)
	return true
}

func (w *Reader) Warn(n *yaml.Node, p *Path, format string, args ...any) {
	w.WarnAt(NodeAt(n, p), format, args...)
}

func (w *Reader) WarnAt(at Position, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); w.first(at, text) {
		w.Warnings = append(w.Warnings, Warning{w.File, at.Line, at.Column, at.Path.String(), text})
	}
}

// first reports whether this was not told before.
func (w *Reader) first(at Position, text string) bool {
	f := finding{at.Line, at.Column, text}
	if w.told[f] {
		return false
	}
	w.told[f] = true
	return true
}

// nothing stands for what is no longer looked at.
var nothing = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}

// Follow returns what n stands for, if it is an alias.
func (w *Reader) Follow(n *yaml.Node, p *Path) *yaml.Node {
	if w.left--; w.left < 0 {
		if w.left == -1 {
			w.Bad(n, p, "aliases that multiply to more than a million nodes", "fewer")
		}
		return nothing
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (w *Reader) Spent() bool { return w.left < 0 }

// Level is what a mapping may hold.
type Level struct {
	// Is names the mapping: "a descriptor".
	Is     string
	Fields []Field
	// Theirs are the levels that envoyproxy/ratelimit has.
	Theirs bool
}

type Field struct {
	Name string
	// Theirs are the fields that envoyproxy/ratelimit has at this level. They
	// may have no value, which is as if they were not there: it takes that for
	// all of its own.
	Theirs bool
}

func (l *Level) Names() []string {
	names := make([]string, len(l.Fields))
	for i := range l.Fields {
		names[i] = l.Fields[i].Name
	}
	return names
}

func (l *Level) index(name string) int {
	return slices.IndexFunc(l.Fields, func(f Field) bool { return f.Name == name })
}

// maxFields bounds how many fields a level has.
const maxFields = 12

// Object is a mapping of a known level.
type Object struct {
	level *Level
	// At is where the mapping is used, n the mapping itself.
	At, n *yaml.Node
	// keys are those that were given; values are nil for those without one.
	keys, values [maxFields]*yaml.Node
	// before are mappings that stand under a key given again, the last first:
	// envoyproxy/ratelimit takes from them what the later one leaves open.
	before []*yaml.Node
}

// Get returns the value of a field of the level, or nil.
func (o *Object) Get(name string) *yaml.Node { return o.values[o.level.index(name)] }

// Key returns the key of a field that is there.
func (o *Object) Key(name string) *yaml.Node { return o.keys[o.level.index(name)] }

// First returns the first of these fields that is there, or "".
func (o *Object) First(names ...string) string {
	for _, name := range names {
		if o.Get(name) != nil {
			return name
		}
	}
	return ""
}

// Object reads a mapping. It returns false, and has said why, if n is none.
func (w *Reader) Object(n *yaml.Node, p *Path, l *Level) (*Object, bool) {
	o := w.newObject()
	o.level, o.At, o.n = l, n, w.Follow(n, p)
	if w.Spent() {
		return nil, false
	}
	if o.n.Kind != yaml.MappingNode {
		w.Bad(n, p, DescribeNode(o.n), l.Is+", with "+Commas(l.Names()))
		return nil, false
	}
	w.fields(o, o.n, p, 0)
	return o, !w.Spent()
}

func (w *Reader) newObject() *Object {
	if len(w.free) == 0 {
		return new(Object)
	}
	o := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	return o
}

// Release takes back an object that nobody looks at any more: a large file has
// 100,000s of them.
func (w *Reader) Release(o *Object) {
	*o = Object{}
	w.free = append(w.free, o)
}

// Nested reads the mapping in a field.
func (w *Reader) Nested(outer *Object, name string, p *Path, l *Level) (*Object, bool) {
	o, ok := w.Object(outer.Get(name), p, l)
	if ok {
		for _, n := range outer.before {
			w.fields(o, n, p, 0)
		}
	}
	return o, ok && !w.Spent()
}

// maxMerges bounds how deep << may lead from one mapping into another.
const maxMerges = 100

// fields adds the fields of the mapping n that o does not have yet, then those
// of the mappings that it merges.
func (w *Reader) fields(o *Object, n *yaml.Node, p *Path, depth int) {
	var own [maxFields]*yaml.Node
	var merge []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := w.Follow(n.Content[i], p), n.Content[i+1]
		if w.Spent() {
			return
		}
		if k.Kind != yaml.ScalarNode {
			w.Bad(n.Content[i], p, DescribeNode(k)+" as a key", Commas(o.level.Names()))
			continue
		}
		if k.Tag == "!!merge" {
			if merge == nil || w.Lax(n.Content[i], p, "<< twice", "once, with a list of what to merge", "what the last one merges goes before") {
				merge = append(merge, v)
			}
			continue
		}
		f := o.level.index(k.Value)
		if f < 0 {
			w.unknown(n.Content[i], v, p, k.Value, o.level)
			continue
		}
		first := own[f]
		own[f] = n.Content[i]
		switch {
		case first != nil:
			w.again(o, f, first, n.Content[i], v, p.Key(k.Value))
		case o.keys[f] == nil:
			o.set(f, own[f], v)
		}
	}
	for _, m := range slices.Backward(merge) {
		w.merge(o, m, p, depth+1)
	}
}

func (o *Object) set(f int, k, v *yaml.Node) {
	o.keys[f], o.values[f] = k, v
	if isNull(v) && o.level.Fields[f].Theirs {
		o.values[f] = nil
	}
}

// merge adds the fields of what << names: a mapping or a list of them, of
// which the first that has a field wins.
func (w *Reader) merge(o *Object, n *yaml.Node, p *Path, depth int) {
	const allowed = "an alias of a mapping, or a list of them"
	target := w.Follow(n, p)
	if w.Spent() {
		return
	}
	switch {
	case depth > maxMerges:
		w.Bad(n, p.Key("<<"), fmt.Sprintf("more than %d merges within one another", maxMerges), "fewer")
	case target.Kind == yaml.MappingNode:
		w.fields(o, target, p, depth)
	case target.Kind == yaml.SequenceNode:
		for i, item := range target.Content {
			m := w.Follow(item, p)
			if w.Spent() {
				return
			}
			if m.Kind != yaml.MappingNode {
				w.Bad(item, p.Key("<<").Item(i), DescribeNode(m), "an alias of a mapping")
				continue
			}
			w.fields(o, m, p, depth)
		}
	default:
		w.Bad(n, p.Key("<<"), DescribeNode(target), allowed)
	}
}

// Later returns that of two nodes which stands further down in the file.
func Later(a, b *yaml.Node) *yaml.Node {
	if a.Line > b.Line || a.Line == b.Line && a.Column > b.Column {
		return a
	}
	return b
}

// unknown reports a key that the level does not have, and where it belongs or
// what was probably meant.
func (w *Reader) unknown(k, v *yaml.Node, p *Path, name string, l *Level) {
	found := "an unknown key " + Quote(name) + " in " + l.Is
	if home, theirs := w.homeOf(name); home != "" {
		found = fmt.Sprintf("%s in %s, but it belongs in %s", name, l.Is, home)
		if theirs && l.Theirs && w.Lax(k, p, found, Commas(l.Names()), "it is ignored") {
			w.ignored(v, p.Key(name))
			return
		}
	} else if near := w.meant(name, l); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.Bad(k, p, found, Commas(l.Names()))
}

// meant returns what was probably meant by a key that the level does not have:
// another, or one with the blank that makes a key or an item of it.
func (w *Reader) meant(name string, l *Level) string {
	if key, value, ok := strings.Cut(name, ":"); ok && l.index(key) >= 0 {
		return key + ": " + shorten(value)
	}
	if key, ok := strings.CutPrefix(name, "-"); ok {
		if home, _ := w.homeOf(key); home != "" {
			return "- " + key
		}
	}
	return Nearest(name, l.Names())
}

// homeOf says where a key belongs that was found in a mapping without it, and
// whether envoyproxy/ratelimit knows it too.
func (w *Reader) homeOf(key string) (home string, theirs bool) {
	for _, l := range w.levels {
		if i := l.index(key); i >= 0 {
			return l.Is, l.Fields[i].Theirs
		}
	}
	return "", false
}

// List returns the items of a list. It returns false, and has said why, if n
// Is none.
func (w *Reader) List(n *yaml.Node, p *Path, of string) ([]*yaml.Node, bool) {
	target := w.Follow(n, p)
	if w.Spent() {
		return nil, false
	}
	if target.Kind != yaml.SequenceNode {
		w.Bad(n, p, DescribeNode(target), "a list of "+of)
		return nil, false
	}
	return target.Content, true
}

// Text returns a scalar as it was written. It returns false, and has said why,
// if n is none.
func (w *Reader) Text(n *yaml.Node, p *Path, allowed string) (string, bool) {
	target := w.Follow(n, p)
	if w.Spent() {
		return "", false
	}
	switch target.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		if target.Kind == yaml.ScalarNode {
			return target.Value, true
		}
	default:
		if s, ok := taggedText(target); ok && w.Lax(n, p, DescribeNode(target), allowed, "it is taken for the text "+Quote(s)) {
			return s, true
		} else if ok {
			return "", false
		}
	}
	w.Bad(n, p, DescribeNode(target), allowed)
	return "", false
}

// Name reads a name of at most longest bytes that can be shown as it is.
func (w *Reader) Name(n *yaml.Node, p *Path, what string, longest int) (string, bool) {
	if t := w.Follow(n, p); t.Kind == yaml.ScalarNode && t.Tag == "!!str" && t.Value != "" && len(t.Value) <= longest && !HasControl(t.Value) {
		return t.Value, true
	}
	allowed := fmt.Sprintf("%s of 1 to %d bytes without control characters", what, longest)
	s, ok := w.Text(n, p, allowed)
	switch {
	case !ok:
		return "", false
	case s == "":
		w.Bad(n, p, "an empty text", allowed)
		return "", false
	case len(s) > longest && !w.Lax(n, p, fmt.Sprintf("%d bytes, %s", len(s), Quote(s)), allowed, "it is kept"):
		return "", false
	case HasControl(s) && !w.Lax(n, p, "the text "+Quote(s), allowed, "it is kept"):
		return "", false
	}
	return s, true
}

// BadName reports a text that is none of the names, and which was meant.
func (w *Reader) BadName(n *yaml.Node, p *Path, s string, names []string) {
	found := "the text " + Quote(s)
	if near := Nearest(s, names); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.Bad(n, p, found, Commas(names))
}

// Integer returns a YAML integer from lo to hi.
func (w *Reader) Integer(n *yaml.Node, p *Path, lo, hi int64) (int64, bool) {
	target := w.Follow(n, p)
	if w.Spent() {
		return 0, false
	}
	if target.Kind == yaml.ScalarNode && target.Tag == "!!int" {
		v, err := strconv.ParseInt(target.Value, 10, 64)
		if err != nil || target.Value[0] == '0' {
			// The other notations of YAML: 0x10, 0o17, 1_000.
			err = target.Decode(&v)
		}
		if err == nil && v >= lo && v <= hi {
			return v, true
		}
	}
	w.Bad(n, p, DescribeNode(target), fmt.Sprintf("a whole number from %d to %d", lo, hi))
	return 0, false
}

// Boolean returns a YAML boolean; like envoyproxy/ratelimit's reader it takes
// the yes and no of YAML 1.1 too.
func (w *Reader) Boolean(n *yaml.Node, p *Path) (value, ok bool) {
	target := w.Follow(n, p)
	if w.Spent() {
		return false, false
	}
	if target.Kind == yaml.ScalarNode && (target.Tag == "!!bool" || target.Tag == "!!str" && target.Style == 0) {
		if err := target.Decode(&value); err == nil {
			return value, true
		}
	}
	w.Bad(n, p, DescribeNode(target), "true or false")
	return false, false
}

func isNull(n *yaml.Node) bool {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// DescribeNode says what a node is, in words that fit after "found".
func DescribeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "no value"
	case "!!str":
		return "the text " + Quote(n.Value)
	case "!!int", "!!float":
		return "the number " + shorten(n.Value)
	case "!!bool":
		return shorten(n.Value)
	}
	return "the " + shorten(n.Tag) + " " + Quote(n.Value)
}
