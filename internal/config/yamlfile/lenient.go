package yamlfile

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// again reports a field that a mapping has twice: after the key first it has k, with the
// value n. envoyproxy/ratelimit takes the last one, if the field is its own and it can
// read each; one without a value undoes the earlier ones.
func (w *Reader) again(o *Object, f int, first, k, n *yaml.Node) {
	name, key := o.level.Fields[f].Name, o.field(f, k)
	found := fmt.Sprintf("a second %s, the first is on line %d", name, first.Line)
	if !o.level.Theirs || !o.level.Fields[f].Theirs || o.values[f] != nil && !w.readable(name, o.field(f, o.values[f])) {
		w.Bad(key, found, "one")
		return
	}
	if !w.Lax(key, found, "one", "the last one counts") {
		return
	}
	if name == "rate_limit" && o.values[f] != nil {
		o.before = append([]*yaml.Node{w.Follow(o.field(f, o.values[f]))}, o.before...)
	}
	o.set(f, k, n)
	if o.values[f] == nil {
		o.before = nil
	}
}

// readable reports whether envoyproxy/ratelimit could read the value of a field: it reads
// all of them before it takes the last.
func (w *Reader) readable(name string, v Value) bool {
	target := w.Follow(v)
	switch name {
	case "rate_limit", "metadata":
		return target.Kind == yaml.MappingNode
	case "descriptors", "replaces":
		return target.Kind == yaml.SequenceNode
	case "requests_per_unit":
		_, ok := w.Integer(v, 0, 1<<32-1)
		return ok
	case "domain", "key", "value", "name", "unit":
		return target.Kind == yaml.ScalarNode
	}
	_, ok := w.Boolean(v)
	return ok
}

// ignored reports what envoyproxy/ratelimit refuses even in a value that it ignores:
// unknown keys, lists of anything but mappings, and numbers that are not integers.
func (w *Reader) ignored(v Value) {
	target := w.Follow(v)
	if w.Spent() {
		return
	}
	switch target.Kind {
	case yaml.ScalarNode:
		if target.Tag == "!!float" {
			w.Bad(v, DescribeNode(target), "a text, a whole number, true or false")
		}
	case yaml.SequenceNode:
		for i, n := range target.Content {
			item := v.Item(i, n)
			if m := w.Follow(item); m.Kind != yaml.MappingNode {
				w.Bad(item, DescribeNode(m), "a mapping")
				continue
			}
			w.ignored(item)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(target.Content); i += 2 {
			key := v.At(target.Content[i])
			k := w.Follow(key)
			if _, theirs := w.homeOf(k.Value); k.Kind == yaml.ScalarNode && k.Value != "metadata" && (theirs || k.Tag == "!!merge") {
				w.ignored(v.Child(k.Value, target.Content[i+1]))
			} else if k.Kind != yaml.ScalarNode || k.Value != "metadata" {
				w.Bad(key, DescribeNode(k)+" as a key", "a key of limits files")
			}
		}
	}
}

// taggedText returns the text of a scalar with a tag that has no use in limits files.
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
