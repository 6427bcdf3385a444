package yamlfile

import (
	"fmt"
	"slices"
	"strings"
)

// Level is what a mapping may hold.
type Level struct {
	// Is names the mapping: "a descriptor".
	Is     string
	Fields []Field
	// Theirs is whether envoyproxy/ratelimit has this level.
	Theirs bool
}

// maxFields bounds the number of fields of a level.
const maxFields = 20

// Field is a key that a mapping may have.
type Field struct {
	Name string
	// Theirs is whether envoyproxy/ratelimit has this field at this level. It may then
	// have no value and counts as absent, as that service reads it.
	Theirs bool
	// Kind and IsNeeded are for the schema of the file, if it has one.
	Kind     Kind
	IsNeeded bool
}

// Names returns the names of the fields.
func (l *Level) Names() []string {
	names := make([]string, len(l.Fields))
	for i := range l.Fields {
		names[i] = l.Fields[i].Name
	}
	return names
}

func (l *Level) index(name string) int {
	return slices.IndexFunc(l.Fields, func(f Field) bool { return f.Name == name })
}

// unknown reports a key of o that its level does not have, and says where it belongs, or
// what was probably meant.
func (w *Reader) unknown(o *Object, key Value, name string) {
	l := o.level
	found := "an unknown key " + Quote(name) + " in " + l.Is
	if home, theirs := w.homeOf(name); home != "" {
		found = fmt.Sprintf("%s in %s, but it belongs in %s", name, l.Is, home)
		if theirs && l.Theirs {
			w.Lax(key, found, Commas(l.Names()), "it is ignored")
			return
		}
	} else if near := w.meant(name, l); near != "" {
		found += fmt.Sprintf(" (%s?)", near)
	}
	w.Bad(key, found, Commas(l.Names()))
}

// meant returns the nearest match for a key that the level does not have: another key, or
// this one with the blank that it lacks. It returns "" if none is near.
func (w *Reader) meant(name string, l *Level) string {
	if key, value, ok := strings.Cut(name, ":"); ok && l.index(key) >= 0 {
		return key + ": " + Shorten(value)
	}
	if key, ok := strings.CutPrefix(name, "-"); ok {
		if home, _ := w.homeOf(key); home != "" {
			return "- " + key
		}
	}
	return Nearest(name, l.Names())
}

// homeOf returns the first level that has a key, or "", and whether
// envoyproxy/ratelimit has it there too.
func (w *Reader) homeOf(key string) (home string, theirs bool) {
	for _, l := range w.levels {
		if i := l.index(key); i >= 0 {
			return l.Is, l.Fields[i].Theirs
		}
	}
	return "", false
}
