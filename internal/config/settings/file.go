package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// settingsFile reads the values of one YAML file into a layer.
type settingsFile struct {
	*settingsLoader
	path  string
	layer map[string]any
}

func (l *settingsLoader) fromFile(path string) map[string]any {
	f := settingsFile{settingsLoader: l, path: path, layer: map[string]any{}}
	if path == "" {
		return f.layer
	}
	content, err := os.ReadFile(path)
	if err != nil {
		l.failf("read the settings file: %w", err)
		return f.layer
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF): // only comments
		return f.layer
	case err != nil:
		l.failf("%s", f.syntax(err, content))
		return f.layer
	}
	f.section("", doc.Content[0])
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case err == nil:
		l.failf("%s: found a second document; allowed: one", f.at(&second))
	case !errors.Is(err, io.EOF):
		l.failf("%s", f.syntax(err, content))
	}
	return f.layer
}

// syntax phrases an error of the YAML parser.
func (f *settingsFile) syntax(err error, content []byte) string {
	e := yamlfile.CheckText(content)
	if e == nil {
		e = yamlfile.SyntaxError(content, err)
	}
	e.File = f.path
	return e.Error()
}

func (f *settingsFile) at(n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", f.path, n.Line, n.Column)
}

// followAlias returns what *name stands for. The walk goes no deeper than the table of
// settings, so an alias inside itself ends it like any other value.
func followAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// nodeKind says in words what a node is, without its text, which may be a wrongly
// indented secret.
func nodeKind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "no value"
	case n.ShortTag() == "!!str":
		return "a text"
	case n.ShortTag() == "!!bool":
		return "true or false"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "a number"
	}
	return "a value of another type"
}

// section reads the mapping under prefix, which is "" or ends with a dot.
func (f *settingsFile) section(prefix string, written *yaml.Node) {
	n := followAlias(written)
	name := strings.TrimSuffix(prefix, ".")
	if name == "" {
		name = "settings"
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.failf("%s: %s: found %s; allowed: a mapping of settings", f.at(written), name, nodeKind(n))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		scalar := followAlias(key)
		switch {
		case scalar.Kind != yaml.ScalarNode:
			f.failf("%s: %s: found %s as a key; allowed: the name of a setting", f.at(key), name, nodeKind(scalar))
			continue
		case scalar.ShortTag() == "!!merge":
			f.failf("%s: %s: found a merge key; allowed: the name of a setting", f.at(key), name)
			continue
		}
		child := prefix + scalar.Value
		if line := lines[child]; line != 0 {
			f.failf("%s: %s: found a second time; allowed: once; the first is in line %d", f.at(key), unknownName(child), line)
			continue
		}
		lines[child] = key.Line
		f.child(child, strings.Contains(scalar.Value, "."), key, value)
	}
}

// child reads the value under the dotted name. dots is set if the key itself contains
// dots, where each part should be a mapping.
func (f *settingsFile) child(name string, dots bool, key, value *yaml.Node) {
	switch d := f.lookup(name); {
	case dots && (d != nil || slices.Contains(f.sections, name)):
		last := strings.LastIndexByte(name, '.')
		f.failf("%s: %s: found a name with dots; allowed: a mapping for each part: %s under %s",
			f.at(key), name, name[last+1:], name[:last])
	case d != nil:
		f.value(d, value)
	case slices.Contains(f.sections, name):
		f.section(name+".", value)
	default:
		f.unknown(name, key)
	}
}

func (f *settingsFile) unknown(name string, key *yaml.Node) {
	shown := unknownName(name)
	nearest := NearestName(strings.TrimSuffix(shown, "..."), slices.Concat(f.sections, f.names))
	if nearest == "" {
		nearest = f.elsewhere(name)
	}
	if nearest != "" {
		nearest = "; did you mean " + nearest + "?"
	}
	f.failf("%s: %s: found an unknown setting%s", f.at(key), shown, nearest)
}

// elsewhere returns the only setting with the same last part as name, whose section is
// missing or wrong, or "".
func (f *settingsFile) elsewhere(name string) string {
	last := name[strings.LastIndexByte(name, '.')+1:]
	var found string
	for _, candidate := range f.names {
		if strings.HasSuffix(candidate, "."+last) {
			if found != "" {
				return ""
			}
			found = candidate
		}
	}
	return found
}

func (f *settingsFile) value(d *setting, written *yaml.Node) {
	where := f.at(written)
	named := where + ": " + d.name
	text, found, hint := f.text(d, followAlias(written))
	if found != "" {
		f.refuse(named, d, found, hint)
		return
	}
	if f.accept(named, d, text) {
		put(f.layer, d.name, settingValue{text: text, where: where})
	}
}

// text returns a value as the text that a variable would have. If it has none, found says
// what it is.
func (f *settingsFile) text(d *setting, n *yaml.Node) (text, found, hint string) {
	if n.Kind == yaml.SequenceNode && d.form == listForm {
		var items []string
		for _, item := range n.Content {
			item = followAlias(item)
			if item.Kind != yaml.ScalarNode || item.ShortTag() == "!!null" {
				return "", nodeKind(item) + " in the list", ""
			}
			items = append(items, item.Value)
		}
		if len(items) == 0 {
			return "", "an empty list", ""
		}
		return strings.Join(items, ","), "", ""
	}
	if n.Kind != yaml.ScalarNode {
		return "", nodeKind(n), ""
	}
	tag := n.ShortTag()
	if tag == "!!null" {
		return "", nodeKind(n), `"" for the empty one, or leave the setting out for its default`
	}
	fits := map[settingForm]string{boolForm: "!!bool", integerForm: "!!int"}[d.form]
	switch {
	case d.secret && !strings.HasPrefix(tag, "!!"):
		return "", nodeKind(n), "in quotes"
	case !strings.HasPrefix(tag, "!!") || tag == "!!binary":
		return "", nodeKind(n), ""
	case fits == "" || fits == tag:
		return n.Value, "", ""
	case tag == "!!str" && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return "", "the text " + foundText(n.Value), "without quotes"
	case tag == "!!str":
		return "", "the text " + foundText(n.Value), ""
	}
	return "", foundText(n.Value), ""
}
