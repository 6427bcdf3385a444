package settings

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"

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
	read := yamlfile.NewReader(path, len(content))
	text, wrong := read.Utf8(content)
	var doc *yaml.Node
	if wrong == nil {
		doc, wrong = read.ParseYAML(text)
	}
	if wrong != nil {
		wrong.File = path
		l.errs = append(l.errs, wrong)
	} else if doc != nil {
		l.addSection("", doc)
	}
}

// addSection adds the mapping n of a file. section is its name, or "" at the top. No
// message has a text of the file, which may be a wrongly indented secret, except values
// that settings refuse.
func (l *loader) addSection(section string, n *yaml.Node) {
	var content map[string]yaml.Node
	if err := n.Decode(&content); err != nil {
		found := describe(n)
		if n.Kind == yaml.MappingNode {
			found = "a name twice, or one that is no text"
		}
		l.failf("%s: %s: found %s; allowed: a mapping of settings", l.file, cmp.Or(section, "settings"), found)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(content)) {
		name, value := strings.TrimPrefix(section+"."+key, "."), content[key]
		isOfSection := func(d setting) bool { return strings.HasPrefix(d.name, name+".") }
		if d := l.lookup(name); d != nil {
			l.addValue(d, &value)
		} else if slices.ContainsFunc(l.table, isOfSection) {
			l.addSection(name, &value)
		} else {
			l.failf("%s: %s: found an unknown setting%s", l.file, shownName(name), didYouMean(name, l.names()))
		}
	}
}

// addValue adds the value of a setting, as the text that a variable would have.
func (l *loader) addValue(d *setting, n *yaml.Node) {
	var texts []string
	var text *string
	var err error
	if d.list && n.Kind == yaml.SequenceNode {
		err = n.Decode(&texts)
	} else if err = n.Decode(&text); text != nil {
		texts = append(texts, *text)
	}
	if err != nil || texts == nil {
		l.refuse(l.file, d, describe(n))
		return
	}
	l.set(d, strings.Join(texts, ","), l.file)
}

// describe says what a node is, without its text.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "no value"
	}
	return "a text, a number or a boolean"
}

// names returns the names of all settings and sections.
func (l *loader) names() (names []string) {
	for _, d := range l.table {
		section, _, _ := strings.Cut(d.name, ".")
		names = append(names, section, d.name)
	}
	return names
}
