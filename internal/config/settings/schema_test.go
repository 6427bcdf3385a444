package settings

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/schematest"
)

type object = schematest.Object

// The published schema is the one of the table.
func TestSchemaIsPublished(t *testing.T) {
	top := section()
	for _, d := range allSettings() {
		at, parts := top, strings.Split(d.name, ".")
		last := len(parts) - 1
		for _, part := range parts[:last] {
			properties := at["properties"].(object)
			if properties[part] == nil {
				properties[part] = section()
			}
			at = properties[part].(object)
		}
		at["properties"].(object)[parts[last]] = schemaOf(t, d)
	}
	schematest.Publish(t, "settings.schema.json", "A settings file of ratelimitd", "configuration.md", top)
}

// section returns a schema for settings. They may all be commented out.
func section() object {
	return object{"type": []string{"object", "null"}, "additionalProperties": false, "properties": object{}}
}

func schemaOf(t *testing.T, d setting) object {
	field := reflect.TypeFor[Settings]().FieldByIndex(d.field)
	bound := func(tag string) int64 {
		n, err := strconv.ParseInt(field.Tag.Get(tag), 10, 64)
		if err != nil {
			t.Fatal(d.name, err)
		}
		return n
	}
	text := object{"type": []string{"string", "number", "boolean"}}
	list := func(of object, least int) object {
		return object{"anyOf": []any{text, object{"type": "array", "items": of, "minItems": least}}}
	}
	var s object // one of its own, for the description
	switch reflect.Zero(field.Type).Interface().(type) {
	case bool:
		s = object{"type": "boolean"}
	case int, int64:
		s = object{"type": "integer", "minimum": bound("min"), "maximum": bound("max")}
	case time.Duration:
		s = object{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}
		if field.Tag.Get("min") == "0s" {
			s = object{"anyOf": []any{s, object{"const": 0}}}
		}
	case float32, float64:
		s = object{"type": "number", "minimum": 0, "maximum": 1}
	case map[string]string:
		s = list(text, 0)
	case Secret, HeaderSecrets, []StatsdRule:
		s = text
	case slog.Level, bucket.FailureMode:
		s = object{"enum": strings.Split(d.word, "|")}
	default:
		least := 1
		if field.Tag.Get("empty") != "" {
			least = 0
		}
		words := strings.Split(field.Tag.Get("of"), "|")
		hasWords := words[0] != ""
		one := object{"type": text["type"], "minLength": least}
		switch isList := field.Type.Kind() == reflect.Slice; {
		case isList && hasWords:
			s = list(object{"enum": words}, least)
		case isList:
			s = list(text, least)
		case hasWords:
			s = object{"enum": words}
		default:
			s = one
		}
	}
	if d.auto != "" {
		s = object{"anyOf": []any{object{"const": "auto"}, s}}
	}
	what := d.title + ": " + d.help
	if d.byDefault != "" {
		what += " [" + d.byDefault + "]"
	}
	s["description"] = what
	return s
}

// onlyCode are the faults in files of these tests that the schema cannot express, with the
// reason.
var onlyCode = map[string]string{
	"two documents": "it describes one document, not a file",
	"octal":         "it sees the number that YAML makes of a text",

	"sockets":                          forms,
	"paths of metrics":                 forms,
	"prefix":                           forms,
	"values and what they do together": forms,

	"missing files":                          together,
	"sentinel without a master":              together,
	"two passwords":                          together,
	"pprof for all":                          together,
	"forward auth without HTTP and its file": together,
}

const (
	forms    = "what an address, a path or a list in one text may be, and how long a duration, only its parser knows"
	together = "settings are judged together, with variables, flags and files"
)

// refusedBySchema checks that the schema refuses a bad file, unless only code can judge it.
func refusedBySchema(t *testing.T, schema schematest.Schema, name, text string) {
	t.Helper()
	if err := schema.Validate(text); (err == nil) != (onlyCode[name] != "") {
		t.Errorf("the schema says %v, and in onlyCode is %q", err, onlyCode[name])
	}
}

func TestSchemaTakesTheProjectsFiles(t *testing.T) {
	t.Parallel()
	schema := schematest.Load(t, "settings.schema.json")
	if n := schema.ValidateAll(t, regexp.MustCompile(`(?m)^limits:\n(.*\n)*?  (path|source):`)); n < 3 {
		t.Errorf("only %d files", n)
	}
}

// The loader and the schema agree about each setting with values of all kinds.
func TestSchemaJudgesAsTheLoader(t *testing.T) {
	t.Parallel()
	schema := schematest.Load(t, "settings.schema.json")
	values := []any{
		"", "x", "auto", "memory", "debug", "local", "5s", "a:1", "/x", "a=b", "a:b", 0, 1, 0.5, -1, 100, 1 << 20, 1 << 50, true, []any{}, []any{"a:1"}, []any{"b3"}, []any{"a=b"}, object{}, object{"a": 1}, nil,
	}
	simple := []string{boolKind.word, ratioKind.word, "integer"}
	l := newLoader()
	for _, d := range allSettings() {
		for _, value := range values {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			file := "{" + strings.ReplaceAll(`"`+d.name+`":`, ".", `":{"`) + string(text) + strings.Repeat("}", 1+strings.Count(d.name, "."))
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(file), &doc); err != nil {
				t.Fatal(err)
			}
			l.errs = nil
			l.addSection("", doc.Content[0])
			judged := schema.Validate(file)
			_, isInt := value.(int)
			switch isGood := len(l.errs) == 0; {
			case isGood == (judged == nil):
			case isGood && d.word == boolKind.word && isInt: // 0 and 1, as in variables
			case judged == nil && !slices.Contains(simple, d.word) && !strings.Contains(d.word, "|"): // see forms
			default:
				t.Errorf("%s\nloader: %v\nschema: %v", file, l.errs, judged)
			}
		}
	}
}
