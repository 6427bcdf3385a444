package yamlfile

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Object is a mapping of a known level.
type Object struct {
	// Value is where the mapping is used, possibly an alias of it.
	Value
	level *Level
	// path is a copy of the path of Value. The paths of the fields lead back to it and
	// outlive the object.
	path *Path
	// keys are the given keys; values are nil for those without one.
	keys, values [maxFields]*yaml.Node
}

// Field returns the value of a field of the level, and whether there is one.
func (o *Object) Field(name string) (Value, bool) {
	f := o.level.index(name)
	return o.field(f, o.values[f]), o.values[f] != nil
}

// Needed returns the value of a required field. If it is missing, it reports what is
// allowed and returns false.
func (w *Reader) Needed(o *Object, name, allowed string) (Value, bool) {
	v, ok := o.Field(name)
	if !ok {
		w.Bad(o.Value, "no "+name, allowed)
	}
	return v, ok
}

// Key returns the key of a present field, with the path of the field.
func (o *Object) Key(name string) Value {
	f := o.level.index(name)
	return o.field(f, o.keys[f])
}

func (o *Object) field(f int, n *yaml.Node) Value {
	return Value{n, Path{up: o.path, name: o.level.Fields[f].Name}}
}

// Has reports whether a field has a value.
func (o *Object) Has(name string) bool { return o.values[o.level.index(name)] != nil }

// First returns the first of these fields that is present, or "".
func (o *Object) First(names ...string) string {
	for _, name := range names {
		if o.Has(name) {
			return name
		}
	}
	return ""
}

// Object reads a mapping. If v is not one, it reports that and returns false.
func (w *Reader) Object(v Value, l *Level) (*Object, bool) {
	n := w.Follow(v)
	if w.Spent() {
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		w.Bad(v, DescribeNode(n), l.Is+", with "+Commas(l.Names()))
		return nil, false
	}
	path := v.Path
	o := &Object{Value: v, level: l, path: &path}
	w.fields(o, n, 0)
	return o, !w.Spent()
}

// Nested reads the mapping in a present field.
func (w *Reader) Nested(outer *Object, name string, l *Level) (*Object, bool) {
	v, _ := outer.Field(name)
	return w.Object(v, l)
}

// maxMerges bounds how deep << may lead from one mapping into another.
const maxMerges = 100

// fields adds the fields of the mapping n that o does not have yet, then those
// of the mappings that n merges.
func (w *Reader) fields(o *Object, n *yaml.Node, depth int) {
	var own [maxFields]*yaml.Node
	var merge *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := o.At(n.Content[i]), n.Content[i+1]
		k := w.Follow(key)
		if w.Spent() {
			return
		}
		if k.Kind != yaml.ScalarNode {
			w.Bad(key, DescribeNode(k)+" as a key", Commas(o.level.Names()))
			continue
		}
		if k.Tag == "!!merge" {
			if merge != nil {
				w.Bad(key, "<< twice", "once, with a list of what to merge")
			}
			merge = value
			continue
		}
		f := o.level.index(k.Value)
		if f < 0 {
			w.unknown(o, key, k.Value)
			continue
		}
		first := own[f]
		own[f] = key.Node
		switch {
		case first != nil:
			w.again(o, f, first, key.Node, value)
		case o.keys[f] == nil:
			o.set(f, key.Node, value)
		}
	}
	if merge != nil {
		w.merge(o, merge, depth+1)
	}
}

func (o *Object) set(f int, k, v *yaml.Node) {
	o.keys[f], o.values[f] = k, v
	if isNull(v) && o.level.Fields[f].Theirs {
		o.values[f] = nil
	}
}

// merge adds the fields of what << names: a mapping or a list of them. The first that has
// a field wins.
func (w *Reader) merge(o *Object, n *yaml.Node, depth int) {
	target := w.Follow(o.At(n))
	if w.Spent() {
		return
	}
	switch {
	case depth > maxMerges:
		w.Bad(o.Child("<<", n), fmt.Sprintf("more than %d merges within one another", maxMerges), "fewer")
	case target.Kind == yaml.MappingNode:
		w.fields(o, target, depth)
	case target.Kind == yaml.SequenceNode:
		for _, item := range target.Content {
			w.merge(o, item, depth+1)
		}
	default:
		w.Bad(o.Child("<<", n), DescribeNode(target), "an alias of a mapping, or a list of them")
	}
}

func isNull(n *yaml.Node) bool {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}
