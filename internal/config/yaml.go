package config

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

// utf8 returns what a file holds as UTF-8 without a mark at its beginning, or
// an Error without a file.
func (w *walker) utf8(data []byte) ([]byte, *Error) {
	if text, ok := fromUTF16(data); ok && w.lenient {
		w.warnAt(position{1, 1, nil}, "found UTF-16; it is read as it is")
		data = text
	}
	if err := checkText(data); err != nil {
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

// parseYAML parses the one document of a text. It returns nil for one that
// holds none, and an Error without a file for one that is no such document;
// both where more follows the document.
func (w *walker) parseYAML(data []byte) (*yaml.Node, *Error) {
	doc, second, err := decodeYAML(data)
	if err != nil && doc != nil && w.lenient {
		// Nobody reads beyond the first document, wrong as it may be.
		e := syntaxError(data, err)
		w.warnAt(position{e.Line, e.Column, nil}, "found more after the first document; it is ignored")
		err = nil
	}
	switch {
	case err != nil:
		return nil, syntaxError(data, err)
	case second == nil && (doc == nil || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" && doc.Content[0].Kind == yaml.ScalarNode):
		return nil, nil
	}
	if bytes.IndexByte(data, '&') >= 0 {
		if err := findCycle(doc, make(map[*yaml.Node]bool)); err != nil {
			return nil, err
		}
	}
	if second != nil && w.lenient {
		w.warn(second, nil, "found a second document; it and those after it are ignored")
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

// checkText finds what the YAML reader would refuse without saying where.
func checkText(data []byte) *Error {
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

// decodeYAML returns the first document of data, and the second if there is
// one. With an error it returns the first if that is good.
func decodeYAML(data []byte) (doc, second *yaml.Node, err error) {
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

// syntaxError tells where the parser failed. Its own line is often that of an
// earlier token, or missing; the line that matters is the first with which the
// parser fails as it does with all.
func syntaxError(data []byte, err error) *Error {
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
			if _, _, e := decodeYAML(data[:end]); e != nil && e.Error() == err.Error() {
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

// path is where the walker stands in a file.
type path struct {
	up    *path
	name  string
	index int // counts if name is empty
}

func (p *path) key(name string) *path { return &path{up: p, name: name} }
func (p *path) item(i int) *path      { return &path{up: p, index: i} }

// String returns the path as descriptors[2].rate_limit.period
func (p *path) String() string {
	var steps []*path
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

// position is a place in a file.
type position struct {
	line, column int
	path         *path
}

func nodeAt(n *yaml.Node, p *path) position { return position{n.Line, n.Column, p} }

// walker walks the nodes of one file and gathers what is wrong with them.
type walker struct {
	file string
	// levels are those that keys may be meant for which stand elsewhere.
	levels []*level
	// lenient makes warnings of what envoyproxy/ratelimit accepts.
	lenient  bool
	errs     Errors
	warnings []Warning

	// told holds what was already reported: a mistake behind an anchor is one
	// mistake, however many aliases lead to it.
	told map[finding]bool
	// free are objects to use again.
	free []*object
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

func newWalker(file string, size int, levels ...*level) *walker {
	return &walker{file: file, levels: levels, told: make(map[finding]bool), left: size + maxAliasVisits}
}

// bad reports what was found at n, which stands at p.
func (w *walker) bad(n *yaml.Node, p *path, found, allowed string) {
	w.badAt(nodeAt(n, p), found, allowed)
}

func (w *walker) badAt(at position, found, allowed string) {
	if w.first(at, found) {
		w.errs = append(w.errs, Error{w.file, at.line, at.column, at.path.String(), found, allowed})
	}
}

// lax reports what was found at n and envoyproxy/ratelimit accepts: as bad does
// or, if lenient, as a warning that says what is made of it. It returns whether
// it is accepted.
func (w *walker) lax(n *yaml.Node, p *path, found, allowed, made string) bool {
	if !w.lenient {
		w.bad(n, p, found, allowed)
		return false
	}
	w.warn(n, p, "found %s; %s", found, made)
	return true
}

func (w *walker) warn(n *yaml.Node, p *path, format string, args ...any) {
	w.warnAt(nodeAt(n, p), format, args...)
}

func (w *walker) warnAt(at position, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); w.first(at, text) {
		w.warnings = append(w.warnings, Warning{w.file, at.line, at.column, at.path.String(), text})
	}
}

// first reports whether this was not told before.
func (w *walker) first(at position, text string) bool {
	f := finding{at.line, at.column, text}
	if w.told[f] {
		return false
	}
	w.told[f] = true
	return true
}

// nothing stands for what is no longer looked at.
var nothing = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}

// follow returns what n stands for, if it is an alias.
func (w *walker) follow(n *yaml.Node, p *path) *yaml.Node {
	if w.left--; w.left < 0 {
		if w.left == -1 {
			w.bad(n, p, "aliases that multiply to more than a million nodes", "fewer")
		}
		return nothing
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (w *walker) spent() bool { return w.left < 0 }

// level is what a mapping may hold.
type level struct {
	// is names the mapping: "a descriptor".
	is     string
	fields []field
	// theirs are the levels that envoyproxy/ratelimit has.
	theirs bool
}

type field struct {
	name string
	// theirs are the fields that envoyproxy/ratelimit has at this level. They
	// may have no value, which is as if they were not there: it takes that for
	// all of its own.
	theirs bool
}

func (l *level) names() []string {
	names := make([]string, len(l.fields))
	for i := range l.fields {
		names[i] = l.fields[i].name
	}
	return names
}

func (l *level) index(name string) int {
	return slices.IndexFunc(l.fields, func(f field) bool { return f.name == name })
}

// maxFields bounds how many fields a level has.
const maxFields = 12

// object is a mapping of a known level.
type object struct {
	level *level
	// at is where the mapping is used, n the mapping itself.
	at, n *yaml.Node
	// keys are those that were given; values are nil for those without one.
	keys, values [maxFields]*yaml.Node
	// before are mappings that stand under a key given again, the last first:
	// envoyproxy/ratelimit takes from them what the later one leaves open.
	before []*yaml.Node
}

// get returns the value of a field of the level, or nil.
func (o *object) get(name string) *yaml.Node { return o.values[o.level.index(name)] }

// key returns the key of a field that is there.
func (o *object) key(name string) *yaml.Node { return o.keys[o.level.index(name)] }

// first returns the first of these fields that is there, or "".
func (o *object) first(names ...string) string {
	for _, name := range names {
		if o.get(name) != nil {
			return name
		}
	}
	return ""
}

// object reads a mapping. It returns false, and has said why, if n is none.
func (w *walker) object(n *yaml.Node, p *path, l *level) (*object, bool) {
	o := w.newObject()
	o.level, o.at, o.n = l, n, w.follow(n, p)
	if w.spent() {
		return nil, false
	}
	if o.n.Kind != yaml.MappingNode {
		w.bad(n, p, describeNode(o.n), l.is+", with "+commas(l.names()))
		return nil, false
	}
	w.fields(o, o.n, p, 0)
	return o, !w.spent()
}

func (w *walker) newObject() *object {
	if len(w.free) == 0 {
		return new(object)
	}
	o := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	return o
}

// release takes back an object that nobody looks at any more: a large file has
// 100,000s of them.
func (w *walker) release(o *object) {
	*o = object{}
	w.free = append(w.free, o)
}

// nested reads the mapping in a field.
func (w *walker) nested(outer *object, name string, p *path, l *level) (*object, bool) {
	o, ok := w.object(outer.get(name), p, l)
	if ok {
		for _, n := range outer.before {
			w.fields(o, n, p, 0)
		}
	}
	return o, ok && !w.spent()
}

// maxMerges bounds how deep << may lead from one mapping into another.
const maxMerges = 100

// fields adds the fields of the mapping n that o does not have yet, then those
// of the mappings that it merges.
func (w *walker) fields(o *object, n *yaml.Node, p *path, depth int) {
	var own [maxFields]*yaml.Node
	var merge []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := w.follow(n.Content[i], p), n.Content[i+1]
		if w.spent() {
			return
		}
		if k.Kind != yaml.ScalarNode {
			w.bad(n.Content[i], p, describeNode(k)+" as a key", commas(o.level.names()))
			continue
		}
		if k.Tag == "!!merge" {
			if merge == nil || w.lax(n.Content[i], p, "<< twice", "once, with a list of what to merge", "what the last one merges goes before") {
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
			w.again(o, f, first, n.Content[i], v, p.key(k.Value))
		case o.keys[f] == nil:
			o.set(f, own[f], v)
		}
	}
	for _, m := range slices.Backward(merge) {
		w.merge(o, m, p, depth+1)
	}
}

func (o *object) set(f int, k, v *yaml.Node) {
	o.keys[f], o.values[f] = k, v
	if isNull(v) && o.level.fields[f].theirs {
		o.values[f] = nil
	}
}

// merge adds the fields of what << names: a mapping or a list of them, of
// which the first that has a field wins.
func (w *walker) merge(o *object, n *yaml.Node, p *path, depth int) {
	const allowed = "an alias of a mapping, or a list of them"
	target := w.follow(n, p)
	if w.spent() {
		return
	}
	switch {
	case depth > maxMerges:
		w.bad(n, p.key("<<"), fmt.Sprintf("more than %d merges within one another", maxMerges), "fewer")
	case target.Kind == yaml.MappingNode:
		w.fields(o, target, p, depth)
	case target.Kind == yaml.SequenceNode:
		for i, item := range target.Content {
			m := w.follow(item, p)
			if w.spent() {
				return
			}
			if m.Kind != yaml.MappingNode {
				w.bad(item, p.key("<<").item(i), describeNode(m), "an alias of a mapping")
				continue
			}
			w.fields(o, m, p, depth)
		}
	default:
		w.bad(n, p.key("<<"), describeNode(target), allowed)
	}
}

// later returns that of two nodes which stands further down in the file.
func later(a, b *yaml.Node) *yaml.Node {
	if a.Line > b.Line || a.Line == b.Line && a.Column > b.Column {
		return a
	}
	return b
}

// unknown reports a key that the level does not have, and where it belongs or
// what was probably meant.
func (w *walker) unknown(k, v *yaml.Node, p *path, name string, l *level) {
	found := "an unknown key " + quote(name) + " in " + l.is
	if home, theirs := w.homeOf(name); home != "" {
		found = fmt.Sprintf("%s in %s, but it belongs in %s", name, l.is, home)
		if theirs && l.theirs && w.lax(k, p, found, commas(l.names()), "it is ignored") {
			w.ignored(v, p.key(name))
			return
		}
	} else if near := w.meant(name, l); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.bad(k, p, found, commas(l.names()))
}

// meant returns what was probably meant by a key that the level does not have:
// another, or one with the blank that makes a key or an item of it.
func (w *walker) meant(name string, l *level) string {
	if key, value, ok := strings.Cut(name, ":"); ok && l.index(key) >= 0 {
		return key + ": " + shorten(value)
	}
	if key, ok := strings.CutPrefix(name, "-"); ok {
		if home, _ := w.homeOf(key); home != "" {
			return "- " + key
		}
	}
	return nearest(name, l.names())
}

// homeOf says where a key belongs that was found in a mapping without it, and
// whether envoyproxy/ratelimit knows it too.
func (w *walker) homeOf(key string) (home string, theirs bool) {
	for _, l := range w.levels {
		if i := l.index(key); i >= 0 {
			return l.is, l.fields[i].theirs
		}
	}
	return "", false
}

// list returns the items of a list. It returns false, and has said why, if n
// is none.
func (w *walker) list(n *yaml.Node, p *path, of string) ([]*yaml.Node, bool) {
	target := w.follow(n, p)
	if w.spent() {
		return nil, false
	}
	if target.Kind != yaml.SequenceNode {
		w.bad(n, p, describeNode(target), "a list of "+of)
		return nil, false
	}
	return target.Content, true
}

// text returns a scalar as it was written. It returns false, and has said why,
// if n is none.
func (w *walker) text(n *yaml.Node, p *path, allowed string) (string, bool) {
	target := w.follow(n, p)
	if w.spent() {
		return "", false
	}
	switch target.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		if target.Kind == yaml.ScalarNode {
			return target.Value, true
		}
	default:
		if s, ok := taggedText(target); ok && w.lax(n, p, describeNode(target), allowed, "it is taken for the text "+quote(s)) {
			return s, true
		} else if ok {
			return "", false
		}
	}
	w.bad(n, p, describeNode(target), allowed)
	return "", false
}

// name reads a name of at most longest bytes that can be shown as it is.
func (w *walker) name(n *yaml.Node, p *path, what string, longest int) (string, bool) {
	if t := w.follow(n, p); t.Kind == yaml.ScalarNode && t.Tag == "!!str" && t.Value != "" && len(t.Value) <= longest && !hasControl(t.Value) {
		return t.Value, true
	}
	allowed := fmt.Sprintf("%s of 1 to %d bytes without control characters", what, longest)
	s, ok := w.text(n, p, allowed)
	switch {
	case !ok:
		return "", false
	case s == "":
		w.bad(n, p, "an empty text", allowed)
		return "", false
	case len(s) > longest && !w.lax(n, p, fmt.Sprintf("%d bytes, %s", len(s), quote(s)), allowed, "it is kept"):
		return "", false
	case hasControl(s) && !w.lax(n, p, "the text "+quote(s), allowed, "it is kept"):
		return "", false
	}
	return s, true
}

// badName reports a text that is none of the names, and which was meant.
func (w *walker) badName(n *yaml.Node, p *path, s string, names []string) {
	found := "the text " + quote(s)
	if near := nearest(s, names); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.bad(n, p, found, commas(names))
}

// integer returns a YAML integer from lo to hi.
func (w *walker) integer(n *yaml.Node, p *path, lo, hi int64) (int64, bool) {
	target := w.follow(n, p)
	if w.spent() {
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
	w.bad(n, p, describeNode(target), fmt.Sprintf("a whole number from %d to %d", lo, hi))
	return 0, false
}

// boolean returns a YAML boolean; like envoyproxy/ratelimit's reader it takes
// the yes and no of YAML 1.1 too.
func (w *walker) boolean(n *yaml.Node, p *path) (value, ok bool) {
	target := w.follow(n, p)
	if w.spent() {
		return false, false
	}
	if target.Kind == yaml.ScalarNode && (target.Tag == "!!bool" || target.Tag == "!!str" && target.Style == 0) {
		if err := target.Decode(&value); err == nil {
			return value, true
		}
	}
	w.bad(n, p, describeNode(target), "true or false")
	return false, false
}

func isNull(n *yaml.Node) bool {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// describeNode says what a node is, in words that fit after "found".
func describeNode(n *yaml.Node) string {
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
		return "the text " + quote(n.Value)
	case "!!int", "!!float":
		return "the number " + shorten(n.Value)
	case "!!bool":
		return shorten(n.Value)
	}
	return "the " + shorten(n.Tag) + " " + quote(n.Value)
}
