package yamlfile

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// again reports a field that a mapping has twice. Of envoyproxy/ratelimit's own
// the last one counts, if it can read all of them; one without a value takes
// back what was said before.
func (w *Reader) again(o *Object, f int, first, k, v *yaml.Node, p *Path) {
	name := o.level.Fields[f].Name
	found := fmt.Sprintf("a second %s, the first is on line %d", name, first.Line)
	if !o.level.Theirs || !o.level.Fields[f].Theirs || o.values[f] != nil && !w.readable(o, name, p) {
		w.Bad(k, p, found, "one")
		return
	}
	if !w.Lax(k, p, found, "one", "the last one counts") {
		return
	}
	if name == "rate_limit" && o.values[f] != nil {
		o.before = append([]*yaml.Node{w.Follow(o.values[f], p)}, o.before...)
	}
	o.set(f, k, v)
	if o.values[f] == nil {
		o.before = nil
	}
}

// readable reports whether the value of a field, which another will take the
// place of, has the type that envoyproxy/ratelimit reads.
func (w *Reader) readable(o *Object, name string, p *Path) bool {
	n := o.Get(name)
	target := w.Follow(n, p)
	switch name {
	case "rate_limit", "metadata":
		return target.Kind == yaml.MappingNode
	case "descriptors", "replaces":
		return target.Kind == yaml.SequenceNode
	case "requests_per_unit":
		_, ok := w.Integer(n, p, 0, 1<<32-1)
		return ok
	case "domain", "key", "value", "name", "unit":
		return target.Kind == yaml.ScalarNode
	}
	_, ok := w.Boolean(n, p)
	return ok
}

// ignored reports what envoyproxy/ratelimit refuses even where it means
// nothing to it: keys that it does not know, lists of anything but mappings and
// numbers that are not whole.
func (w *Reader) ignored(n *yaml.Node, p *Path) {
	target := w.Follow(n, p)
	if w.Spent() {
		return
	}
	switch target.Kind {
	case yaml.ScalarNode:
		if target.Tag == "!!float" {
			w.Bad(n, p, DescribeNode(target), "a text, a whole number, true or false")
		}
	case yaml.SequenceNode:
		for i, item := range target.Content {
			if m := w.Follow(item, p); m.Kind != yaml.MappingNode {
				w.Bad(item, p.Item(i), DescribeNode(m), "a mapping")
				continue
			}
			w.ignored(item, p.Item(i))
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(target.Content); i += 2 {
			k := w.Follow(target.Content[i], p)
			if _, theirs := w.homeOf(k.Value); k.Kind == yaml.ScalarNode && k.Value != "metadata" && (theirs || k.Tag == "!!merge") {
				w.ignored(target.Content[i+1], p.Key(k.Value))
			} else if k.Kind != yaml.ScalarNode || k.Value != "metadata" {
				w.Bad(target.Content[i], p, DescribeNode(k)+" as a key", "a key of limits files")
			}
		}
	}
}

// taggedText returns the text of a scalar with a tag that limits files have no
// use for.
func taggedText(n *yaml.Node) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		return "", false
	case n.Tag == "!!binary":
		text, err := base64.StdEncoding.DecodeString(n.Value)
		return string(text), err == nil && utf8.Valid(text)
	}
	return n.Value, !strings.HasPrefix(n.Tag, "!!")
}
