package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ParseYAML parses a text of one document. It returns nil if there is none, and
// both the document and an Error if a second one follows. An Error does not name
// the file.
func (w *Reader) ParseYAML(data []byte) (*yaml.Node, *Error) {
	doc, second, err := DecodeYAML(data)
	if err != nil && doc != nil && w.Lenient {
		// envoyproxy/ratelimit does not read on after the first document.
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
		w.Warn(Root(second), "found a second document; it and those after it are ignored")
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

// findCycle finds an alias inside its own anchor. An alias of a node that ended
// before it cannot form a cycle.
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

// DecodeYAML returns the first document of data, and the second if there is
// one. With an error it returns the first if that is good.
func DecodeYAML(data []byte) (doc, second *yaml.Node, err error) {
	defer func() {
		// The parser panics where its authors think that nothing can go wrong.
		// An odd file must not end the daemon if they err.
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

// SyntaxError says where the parser failed. The line that the parser names is
// often that of an earlier token, or missing. So SyntaxError looks for the first
// line up to which the text fails with the same error.
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
		said = "an alias without its anchor" // the name may be a password
	}
	return &Error{Line: line, Column: column, Found: "no YAML: " + said}
}
