package schematest

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// OfLevel returns the schema of the mappings of a level. A key without a value is wrong
// here, even where envoyproxy/ratelimit takes it for absent. what describes the fields, by
// their names.
func OfLevel(t *testing.T, l *yamlfile.Level, what map[string]string) Object {
	t.Helper()
	properties, needed := Object{}, []string{}
	for _, f := range l.Fields {
		if f.Kind == nil {
			t.Fatalf("%s: the field %s has no Kind", l.Is, f.Name)
		}
		of := ofKind(f.Kind)
		if f.IsNeeded {
			needed = append(needed, f.Name)
		}
		if what[f.Name] != "" {
			of = Object{"description": what[f.Name], "allOf": []any{of}}
		}
		properties[f.Name] = of
	}
	return Object{"type": "object", "additionalProperties": false, "properties": properties, "required": needed}
}

// scalar is any value that has a text.
var scalar = []string{"string", "number", "boolean"}

func ofKind(k yamlfile.Kind) Object {
	switch k := k.(type) {
	case yamlfile.Range:
		return Object{"type": "integer", "minimum": k.Min, "maximum": k.Max}
	case yamlfile.Flag:
		if k.Or != "" {
			return Object{"enum": []any{true, false, k.Or}}
		}
		return Object{"type": "boolean"}
	case yamlfile.Words:
		return Object{"enum": k}
	case yamlfile.Text:
		if k.Pattern != "" {
			return Object{"type": "string", "pattern": k.Pattern}
		}
		return Object{"type": scalar}
	case yamlfile.Name:
		least := 1
		if k.MayBeEmpty {
			least = 0
		}
		// JSON Schema counts characters: a name with longer ones is refused by code only.
		return Object{"type": scalar, "minLength": least, "maxLength": k.Longest, "pattern": `^[^\x00-\x1f\x7f-\x9f]*$`}
	case yamlfile.ListOf:
		return Object{"type": "array", "minItems": k.Least, "items": ofKind(k.Of)}
	case yamlfile.MapOf:
		return Object{"type": "object", "minProperties": 1, "propertyNames": ofKind(yamlfile.Name{Longest: k.Longest}), "additionalProperties": ofKind(k.Of)}
	case yamlfile.Either:
		var all []any
		for _, one := range k {
			all = append(all, ofKind(one))
		}
		return Object{"anyOf": all}
	case yamlfile.Ref:
		return Object{"$ref": "#/definitions/" + string(k)}
	case yamlfile.Any:
		return Object{"type": "object"}
	}
	panic(fmt.Sprintf("a kind without a schema: %T", k))
}
