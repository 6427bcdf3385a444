package settings

import (
	"cmp"
	"reflect"
	"regexp"
	"strings"
)

// setting is one row of the table: a field of Settings, with its tags.
type setting struct {
	name  string // as in "redis.hash_tags"
	field []int  // index of the field
	title string // of its section in help
	kind
	byDefault, help string
}

// allSettings returns all rows of the table.
func allSettings() []setting { return rowsOf(reflect.TypeFor[Settings](), setting{}) }

// rowsOf returns the rows of a struct that is itself the field at.
func rowsOf(t reflect.Type, at setting) (all []setting) {
	for f := range t.Fields() {
		d := setting{
			name:      strings.TrimPrefix(at.name+"."+fieldName(f.Name), "."),
			field:     append(at.field[:len(at.field):len(at.field)], f.Index...),
			title:     cmp.Or(f.Tag.Get("title"), at.title),
			byDefault: f.Tag.Get("default"),
			help:      f.Tag.Get("help"),
		}
		at.title = d.title
		if d.help == "" {
			all = append(all, rowsOf(f.Type, d)...)
			continue
		}
		d.kind = kindOf(f)
		all = append(all, d)
	}
	return all
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// fieldName returns the name of a field as settings spell it: hash_tags for HashTags.
func fieldName(field string) string {
	return strings.ToLower(wordStart.ReplaceAllString(field, "${1}_$2"))
}

// valueIn returns the value of a setting.
func (d *setting) valueIn(s *Settings) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(d.field).Interface()
}
