package openapitest

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// WantDescribed holds an answer and its headers, which are numbers, against what an
// operation says of its code. what names the request.
func (doc *Document) WantDescribed(t *testing.T, what string, o Operation, p servertest.Page) {
	t.Helper()
	r, known := o.Responses[strconv.Itoa(p.Code)]
	if r.Ref != "" {
		r, known = doc.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	}
	if !known {
		t.Errorf("%s: the document has no answer %d: %s", what, p.Code, p.Body)
		return
	}
	var v any
	if err := json.Unmarshal([]byte(p.Body), &v); err != nil {
		t.Fatal(err)
	}
	if found := doc.Violations(r.Content["application/json"].Schema, what, v); len(found) > 0 {
		t.Errorf("%s got %s: %v", what, p.Body, found)
	}
	for name, h := range r.Headers {
		if value := p.Header.Get(name); value != "" {
			if n, err := strconv.ParseFloat(value, 64); err != nil || len(doc.Violations(h.Schema, name, n)) > 0 {
				t.Errorf("%s: the header %s is %q", what, name, value)
			}
		}
	}
}

// Violations returns the differences between a JSON value and a schema.
func (doc *Document) Violations(s *Schema, at string, v any) []string {
	if s.Ref != "" {
		target := doc.Components.Schemas[strings.TrimPrefix(s.Ref, SchemaRef)]
		if target == nil {
			return []string{at + ": no schema " + s.Ref}
		}
		return doc.Violations(target, at, v)
	}
	wrong := func(format string, args ...any) []string {
		return []string{at + ": " + fmt.Sprintf(format, args...)}
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			return wrong("an object, not %s", s.Type)
		}
		return doc.objectViolations(s, at, v)
	case []any:
		if s.Type != "array" {
			return wrong("an array, not %s", s.Type)
		}
		var found []string
		for i, item := range v {
			found = append(found, doc.Violations(s.Items, fmt.Sprintf("%s[%d]", at, i), item)...)
		}
		return found
	case bool:
		if s.Type != "boolean" {
			return wrong("a boolean, not %s", s.Type)
		}
	case float64:
		maxima := map[string]float64{"uint32": math.MaxUint32, "uint64": 1 << 53} // of what is written as a number
		if top, unsigned := maxima[s.Format]; s.Type != "integer" || v != math.Trunc(v) || unsigned && (v < 0 || v > top) {
			return wrong("%v, not %s %s", v, s.Type, s.Format)
		}
	case string:
		if s.Type != "string" || !s.holds(v) {
			return wrong("%q, not %s %s %v %s", v, s.Type, s.Format, s.Enum, s.Pattern)
		}
	default:
		return wrong("%v", v)
	}
	return nil
}

func (doc *Document) objectViolations(s *Schema, at string, v map[string]any) (found []string) {
	for name, value := range v {
		p := s.Properties[name]
		switch {
		case p != nil:
			found = append(found, doc.Violations(p, at+"."+name, value)...)
		case s.Additional == nil || *s.Additional:
		default:
			found = append(found, at+"."+name+": no such property")
		}
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			found = append(found, at+"."+name+": is not there")
		}
	}
	return found
}

// holds reports whether the schema allows a text.
func (s *Schema) holds(v string) bool {
	var err error
	switch s.Format {
	case "uint64":
		_, err = strconv.ParseUint(v, 10, 64)
	case "int64":
		_, err = strconv.ParseInt(v, 10, 64)
	}
	return err == nil && (s.Enum == nil || slices.Contains(s.Enum, v)) && regexp.MustCompile(s.Pattern).MatchString(v)
}
