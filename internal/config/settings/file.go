package settings

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// addFile adds the values of a YAML file; none if the path is empty. They are taken as
// written: viper would read the password 0123 as the number 83.
func (l *loader) addFile(path string) {
	if path == "" {
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		l.failf("read the settings file: %w", err)
		return
	}
	l.file = path
	layer := viper.New()
	defer func() { l.merge(layer) }()
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err = decoder.Decode(&doc); errors.Is(err, io.EOF) { // only comments
		return
	}
	if err == nil {
		l.addSection(layer, "", doc.Content[0])
		if err = decoder.Decode(&second); errors.Is(err, io.EOF) {
			return
		}
	}
	if err == nil {
		l.failf("%s: found a second document; allowed: one", path)
		return
	}
	e := yamlfile.CheckText(content)
	if e == nil {
		e = yamlfile.SyntaxError(content, err)
	}
	e.File = path
	l.errs = append(l.errs, e)
}

// addSection adds the mapping n of a file. section is its name, or "" at the top. No
// message has a text of the file, which may be a wrongly indented secret, except values
// of settings that are none.
func (l *loader) addSection(layer *viper.Viper, section string, n *yaml.Node) {
	n = follow(n)
	switch {
	case isNull(n):
		return
	case n.Kind != yaml.MappingNode:
		l.failf("%s: %s: found %s; allowed: a mapping of settings", l.file, cmp.Or(section, "settings"), nodeKind(n))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := follow(n.Content[i]).Value, n.Content[i+1]
		name := strings.TrimPrefix(section+"."+key, ".")
		d := l.lookup(name)
		switch {
		case seen[key]:
			l.failf("%s: %s: found a second time; allowed: once", l.file, unknownName(name))
		case key == "" || key == "<<":
			l.failf("%s: %s: found a key that is no name of a setting", l.file, cmp.Or(section, "settings"))
		case strings.Contains(key, ".") && d != nil:
			l.failf("%s: %s: found a name with dots; allowed: a mapping for each part", l.file, name)
		case d == nil && !slices.Contains(l.sections, name):
			l.failf("%s: %s: found an unknown setting%s", l.file, unknownName(name), l.meant(name))
		case d == nil:
			l.addSection(layer, name, value)
		default:
			l.addValue(layer, d, follow(value))
		}
		seen[key] = true
	}
}

// addValue adds the value of a setting, as the text that a variable would have.
func (l *loader) addValue(layer *viper.Viper, d *setting, n *yaml.Node) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode && d.list {
		items = n.Content
	}
	var texts []string
	for _, item := range items {
		item = follow(item)
		if item.Kind != yaml.ScalarNode || isNull(item) || !strings.HasPrefix(item.ShortTag(), "!!") {
			l.refuse(l.file, d, nodeKind(item))
			return
		}
		texts = append(texts, item.Value)
	}
	l.set(layer, d, strings.Join(texts, ","), l.file)
}

// meant says which setting was probably meant by a name: the nearest, or the only one with
// the same last part.
func (l *loader) meant(name string) string {
	nearest := NearestName(strings.TrimSuffix(unknownName(name), "..."), slices.Concat(l.sections, l.names))
	if nearest == "" {
		last := name[strings.LastIndexByte(name, '.')+1:]
		same := slices.DeleteFunc(slices.Clone(l.names), func(other string) bool { return !strings.HasSuffix(other, "."+last) })
		if len(same) != 1 {
			return ""
		}
		nearest = same[0]
	}
	return "; did you mean " + nearest + "?"
}

// follow returns what *name stands for. The walk goes no deeper than the names of
// settings, so an alias inside itself ends it like any other value.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// nodeKind says in words what a node is, without its text.
func nodeKind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "no value"
	case strings.HasPrefix(n.ShortTag(), "!!"):
		return "a text, a number or a boolean"
	}
	return "a value with a YAML tag"
}
