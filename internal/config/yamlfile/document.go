package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Parse reads the text of a file: top reads the value at its top. allowed is what an
// empty file may contain. It returns everything that is wrong, in order, or nil.
func (w *Reader) Parse(data []byte, allowed string, top func(Value)) error {
	var doc *yaml.Node
	text, err := w.Utf8(data)
	if err == nil {
		doc, err = w.ParseYAML(text)
	}
	if err == nil && doc == nil {
		err = &Error{Line: 1, Column: 1, Found: "an empty file", Allowed: allowed}
	}
	if err != nil {
		err.File = w.File
		w.Errs = append(w.Errs, *err)
	}
	if doc != nil {
		if w.Made {
			forgetLines(doc)
		}
		top(Root(doc))
	}
	if len(w.Errs) == 0 {
		return nil
	}
	w.Errs.Sort()
	return w.Errs
}

// forgetLines sets the positions of all nodes to 0.
func forgetLines(n *yaml.Node) {
	n.Line, n.Column = 0, 0
	for _, below := range n.Content {
		forgetLines(below)
	}
}

// ParseYAML parses a text of one document. It returns nil if there is none. An Error does
// not name the file.
func (w *Reader) ParseYAML(data []byte) (*yaml.Node, *Error) {
	doc, second, err := DecodeYAML(data)
	if w.Lenient && doc != nil && (err != nil || second != nil) {
		// envoyproxy/ratelimit stops reading after the first document.
		at := Position{}
		if err != nil {
			e := SyntaxError(data, err)
			at.Line, at.Column = e.Line, e.Column
		} else {
			at.Line, at.Column = second.Line, second.Column
		}
		w.WarnAt(at, "found more after the first document; it is ignored")
		second, err = nil, nil
	}
	switch {
	case err != nil:
		return nil, SyntaxError(data, err)
	case second != nil:
		return nil, &Error{Line: second.Line, Column: second.Column, Found: "a second document", Allowed: "one document in a file"}
	case doc == nil || len(doc.Content) == 0 || isNull(doc.Content[0]):
		return nil, nil
	}
	if bytes.IndexByte(data, '&') >= 0 {
		if err := findCycle(doc, make(map[*yaml.Node]bool)); err != nil {
			return nil, err
		}
	}
	return doc.Content[0], nil
}

// findCycle finds an alias inside its own anchor. An alias of a node that ended earlier
// cannot form a cycle.
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

// DecodeYAML returns the first document of data, and the second if there is one. With an
// error it returns the first if that is good.
func DecodeYAML(data []byte) (doc, second *yaml.Node, err error) {
	defer func() {
		// The parser panics where its authors think that nothing can go wrong. If they
		// are mistaken, an odd file must not end the daemon.
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
