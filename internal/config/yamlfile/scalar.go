package yamlfile

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Text returns a scalar as written. If v is not one, it reports that and returns false.
func (w *Reader) Text(v Value, allowed string) (string, bool) {
	target := w.Follow(v)
	if w.Spent() {
		return "", false
	}
	switch target.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		if target.Kind == yaml.ScalarNode {
			return target.Value, true
		}
	}
	w.Bad(v, DescribeNode(target), allowed)
	return "", false
}

// Name reads a name of at most longest bytes that can be shown as it is.
func (w *Reader) Name(v Value, what string, longest int) (string, bool) {
	if t := w.Follow(v); t.Kind == yaml.ScalarNode && t.Tag == "!!str" && t.Value != "" && len(t.Value) <= longest && !HasControl(t.Value) {
		return t.Value, true
	}
	allowed := fmt.Sprintf("%s of 1 to %d bytes without control characters", what, longest)
	s, ok := w.Text(v, allowed)
	switch {
	case !ok:
		return "", false
	case s == "":
		w.Bad(v, "an empty text", allowed)
		return "", false
	case len(s) > longest && !w.Lax(v, fmt.Sprintf("%d bytes, %s", len(s), Quote(s)), allowed, "it is kept"):
		return "", false
	case HasControl(s) && !w.Lax(v, "the text "+Quote(s), allowed, "it is kept"):
		return "", false
	}
	return s, true
}

// BadName reports a text that is none of the names, and suggests the nearest.
func (w *Reader) BadName(v Value, s string, names []string) {
	found := "the text " + Quote(s)
	if near := Nearest(s, names); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.Bad(v, found, Commas(names))
}

// OneOf reads one of several values by its name. If v is none of them, it reports that
// and returns false.
func OneOf[T fmt.Stringer](w *Reader, v Value, all ...T) (one T, ok bool) {
	names := NamesOf(all)
	s, ok := w.Text(v, Commas(names))
	if !ok {
		return one, false
	}
	i := slices.Index(names, s)
	if i < 0 {
		w.BadName(v, s, names)
		return one, false
	}
	return all[i], true
}

// Integer returns a YAML integer of a range. If v is not one, it reports that and returns
// false.
func (w *Reader) Integer(v Value, of Range) (int64, bool) {
	target := w.Follow(v)
	if w.Spent() {
		return 0, false
	}
	if target.Kind == yaml.ScalarNode && target.Tag == "!!int" {
		n, err := strconv.ParseInt(target.Value, 10, 64)
		if err != nil || target.Value[0] == '0' {
			// The other notations of YAML: 0x10, 0o17, 1_000.
			err = target.Decode(&n)
		}
		if err == nil && n >= of.Min && n <= of.Max {
			return n, true
		}
	}
	w.Bad(v, DescribeNode(target), fmt.Sprintf("a whole number from %d to %d", of.Min, of.Max))
	return 0, false
}

// Boolean returns a YAML boolean; like envoyproxy/ratelimit's reader it also accepts the
// yes and no of YAML 1.1. If v is not a boolean, it reports that and returns ok false.
func (w *Reader) Boolean(v Value) (value, ok bool) {
	return w.boolean(v, "true or false")
}

// BooleanOr is Boolean for a value that may also be one other word. isWord is set if it
// is.
func (w *Reader) BooleanOr(v Value, word string) (value, isWord, ok bool) {
	if target := w.Follow(v); target.Kind == yaml.ScalarNode && target.Value == word {
		return false, true, true
	}
	value, ok = w.boolean(v, "true, false or "+word)
	return value, false, ok
}

func (w *Reader) boolean(v Value, allowed string) (value, ok bool) {
	target := w.Follow(v)
	if w.Spent() {
		return false, false
	}
	if target.Kind == yaml.ScalarNode && (target.Tag == "!!bool" || target.Tag == "!!str" && target.Style == 0) {
		if err := target.Decode(&value); err == nil {
			return value, true
		}
	}
	w.Bad(v, DescribeNode(target), allowed)
	return false, false
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
		return "the number " + Shorten(n.Value)
	case "!!bool":
		return Shorten(n.Value)
	}
	return "the " + Shorten(n.Tag) + " " + Quote(n.Value)
}
