package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// document is the part of the OpenAPI document that the tests read. It is read
// strictly, so the file has no other parts.
type document struct {
	OpenAPI    string                          `yaml:"openapi"`
	Info       map[string]string               `yaml:"info"`
	Paths      map[string]map[string]operation `yaml:"paths"`
	Components struct {
		Responses map[string]response `yaml:"responses"`
		Schemas   map[string]*schema  `yaml:"schemas"`
	} `yaml:"components"`
}

type operation struct {
	ID         string `yaml:"operationId"`
	Summary    string `yaml:"summary"`
	Parameters []struct {
		Name        string  `yaml:"name"`
		In          string  `yaml:"in"`
		Description string  `yaml:"description"`
		Schema      *schema `yaml:"schema"`
	} `yaml:"parameters"`
	RequestBody struct {
		Required bool    `yaml:"required"`
		Content  content `yaml:"content"`
	} `yaml:"requestBody"`
	Responses map[string]response `yaml:"responses"`
}

type response struct {
	Ref         string `yaml:"$ref"`
	Description string `yaml:"description"`
	Headers     map[string]struct {
		Description string  `yaml:"description"`
		Schema      *schema `yaml:"schema"`
	} `yaml:"headers"`
	Content content `yaml:"content"`
}

// content maps media types.
type content map[string]struct {
	Schema  *schema `yaml:"schema"`
	Example any     `yaml:"example"`
}

type schema struct {
	Ref         string             `yaml:"$ref"`
	Type        string             `yaml:"type"`
	Format      string             `yaml:"format"`
	Description string             `yaml:"description"`
	Examples    []string           `yaml:"examples"`
	Pattern     string             `yaml:"pattern"`
	Enum        []string           `yaml:"enum"`
	Items       *schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Properties  map[string]*schema `yaml:"properties"`
	Additional  *bool              `yaml:"additionalProperties"`
}

// openAPI gets the document from a server.
func openAPI(t *testing.T, d *daemon) *document {
	t.Helper()
	return documentIn(t, d.get("http", "/openapi.yaml"))
}

// documentIn reads the document of a page.
func documentIn(t *testing.T, p page) *document {
	t.Helper()
	if p.code != http.StatusOK || p.header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%d %v", p.code, p.header)
	}
	var doc document
	decoder := yaml.NewDecoder(strings.NewReader(p.body))
	decoder.KnownFields(true)
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}

const schemaRef = "#/components/schemas/"

// violations returns the differences between a JSON value and a schema.
func (doc *document) violations(s *schema, at string, v any) []string {
	if s.Ref != "" {
		target := doc.Components.Schemas[strings.TrimPrefix(s.Ref, schemaRef)]
		if target == nil {
			return []string{at + ": no schema " + s.Ref}
		}
		return doc.violations(target, at, v)
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
			found = append(found, doc.violations(s.Items, fmt.Sprintf("%s[%d]", at, i), item)...)
		}
		return found
	case bool:
		if s.Type != "boolean" {
			return wrong("a boolean, not %s", s.Type)
		}
	case float64:
		if s.Type != "integer" || v != math.Trunc(v) || s.Format == "uint32" && (v < 0 || v > math.MaxUint32) {
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

func (doc *document) objectViolations(s *schema, at string, v map[string]any) (found []string) {
	for name, value := range v {
		p := s.Properties[name]
		switch {
		case p != nil:
			found = append(found, doc.violations(p, at+"."+name, value)...)
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
func (s *schema) holds(v string) bool {
	var err error
	switch s.Format {
	case "uint64":
		_, err = strconv.ParseUint(v, 10, 64)
	case "int64":
		_, err = strconv.ParseInt(v, 10, 64)
	}
	return err == nil && (s.Enum == nil || slices.Contains(s.Enum, v)) && regexp.MustCompile(s.Pattern).MatchString(v)
}

// methods returns the RPCs by the names of their operations.
func methods() map[string]protoreflect.MethodDescriptor {
	byID := map[string]protoreflect.MethodDescriptor{}
	all := ratelimitv1.File_ratelimit_v1_ratelimit_proto.Services().ByName("RateLimitService").Methods()
	for i := range all.Len() {
		name := string(all.Get(i).Name())
		byID[strings.ToLower(name[:1])+name[1:]] = all.Get(i)
	}
	return byID
}

// The paths and methods of the document are the routes of the API. Each stands
// for an RPC with its messages.
func TestOpenAPIPathsAreTheRoutes(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	doc := openAPI(t, d)
	var routes []string
	for path, operations := range doc.Paths {
		for method, o := range operations {
			method = strings.ToUpper(method)
			routes = append(routes, method+" "+path)
			if p := d.fetch(method, "http", path, strings.NewReader("{}")); p.code != http.StatusBadRequest {
				t.Errorf("%s %s of nothing: %d %s", method, path, p.code, p.body)
			}
			if p := d.fetch("DELETE", "http", path, nil); p.code != http.StatusMethodNotAllowed {
				t.Errorf("DELETE %s: %d %s", path, p.code, p.body)
			}
			rpc := methods()[o.ID]
			if rpc == nil {
				t.Errorf("%s %s: there is no RPC %q", method, path, o.ID)
				continue
			}
			wantRef(t, o.RequestBody.Content["application/json"].Schema, rpc.Input())
			wantRef(t, o.Responses["200"].Content["application/json"].Schema, rpc.Output())
		}
	}
	slices.Sort(routes)
	if !slices.Equal(routes, d.srv.APIRoutes()) {
		t.Errorf("the document has %v, the API %v", routes, d.srv.APIRoutes())
	}
}

func wantRef(t *testing.T, s *schema, m protoreflect.MessageDescriptor) {
	t.Helper()
	if s == nil || s.Ref != schemaRef+string(m.Name()) {
		t.Errorf("got the schema %+v, want that of %s", s, m.Name())
	}
}

// The fields of the messages are the properties, with their types. An answer
// requires the fields that always have a value.
func TestOpenAPISchemasAreTheMessages(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, start(t, takeLimits))
	messages, answers := map[string]protoreflect.MessageDescriptor{}, map[string]protoreflect.MessageDescriptor{}
	for _, operations := range doc.Paths {
		for _, o := range operations {
			reach(messages, methods()[o.ID].Input())
			reach(messages, methods()[o.ID].Output())
			reach(answers, methods()[o.ID].Output())
		}
	}
	for name := range doc.Components.Schemas {
		if messages[name] == nil && name != "Error" && name != "Duration" {
			t.Errorf("there is no message %s", name)
		}
	}
	for name, m := range messages {
		s := doc.Components.Schemas[name]
		if s == nil || s.Type != "object" || s.Additional == nil || *s.Additional {
			t.Errorf("%s is no object with nothing but its properties: %+v", name, s)
			continue
		}
		want := map[string]*schema{}
		for i := range m.Fields().Len() {
			want[m.Fields().Get(i).JSONName()] = schemaOf(m.Fields().Get(i))
		}
		got := map[string]*schema{}
		for name, p := range s.Properties {
			got[name] = p.bare()
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s has %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		var required []string
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); answers[name] != nil && !f.HasPresence() {
				required = append(required, f.JSONName())
			}
		}
		slices.Sort(required)
		if !slices.Equal(s.Required, required) {
			t.Errorf("%s requires %v, want %v", name, s.Required, required)
		}
		for field, w := range want {
			if !reflect.DeepEqual(got[field], w) {
				t.Errorf("%s.%s is %+v, want %+v", name, field, got[field], w)
			}
		}
	}
}

// reach collects a message and all messages in it, by name.
func reach(messages map[string]protoreflect.MessageDescriptor, m protoreflect.MessageDescriptor) {
	name := string(m.Name())
	if messages[name] != nil || m.ParentFile().Package() == "google.protobuf" {
		return
	}
	messages[name] = m
	for i := range m.Fields().Len() {
		if of := m.Fields().Get(i).Message(); of != nil {
			reach(messages, of)
		}
	}
}

// bare returns the schema without the parts for people.
func (s *schema) bare() *schema {
	b := *s
	b.Description, b.Examples = "", nil
	return &b
}

// schemaOf returns the schema of a field in protobuf JSON.
func schemaOf(f protoreflect.FieldDescriptor) *schema {
	s := new(schema)
	switch f.Kind() {
	case protoreflect.BoolKind:
		s.Type = "boolean"
	case protoreflect.StringKind:
		s.Type = "string"
	case protoreflect.Uint32Kind:
		s.Type, s.Format = "integer", "uint32"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		s.Type, s.Format = "string", "uint64"
	case protoreflect.Int64Kind:
		s.Type, s.Format = "string", "int64"
	case protoreflect.MessageKind:
		s.Ref = schemaRef + string(f.Message().Name())
	case protoreflect.EnumKind:
		s.Type = "string"
		for i := range f.Enum().Values().Len() {
			s.Enum = append(s.Enum, string(f.Enum().Values().Get(i).Name()))
		}
	}
	if f.IsList() {
		return &schema{Type: "array", Items: s}
	}
	return s
}

// The handlers accept the examples, and protobuf JSON writes them the same
// way.
func TestOpenAPIExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	doc := openAPI(t, d)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			c := o.RequestBody.Content["application/json"]
			if found := doc.violations(c.Schema, path, c.Example); c.Example == nil || len(found) > 0 {
				t.Errorf("%s: the example %v: %v", path, c.Example, found)
			}
			body, err := json.Marshal(c.Example)
			if err != nil {
				t.Fatal(err)
			}
			m := dynamicpb.NewMessage(methods()[o.ID].Input())
			if err := protojson.Unmarshal(body, m); err != nil {
				t.Fatal(err)
			}
			again, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var back any
			if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, c.Example) {
				t.Errorf("%s: %v came back as %v, %v", path, c.Example, back, err)
			}
			if p := d.fetch(strings.ToUpper(method), "http", path, strings.NewReader(string(body))); p.code != http.StatusOK {
				t.Errorf("%s: the example got %d %s", path, p.code, p.body)
			}
		}
	}
}

// The document describes every answer of the handlers, with each status.
func TestOpenAPIDescribesEveryAnswer(t *testing.T) {
	t.Parallel()
	answering := start(t, takeLimits)
	doc := openAPI(t, answering)
	noRefunds := start(t, takeLimits, func(o *server.Options) { o.Requests.Refunds = false })
	failing := start(t, takeLimits, func(o *server.Options) {
		inner := o.Store
		o.Store = &fakeStore{take: func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
			switch hits[0].Cost {
			case 1:
				return errors.New("the store is away")
			case 2:
				panic("in a store")
			}
			return inner.Take(ctx, hits, decisions)
		}}
	})
	several := []string{"free=x", "shadow=x", "several=x:2", "paid=x:3"}
	for _, a := range bucket.Algorithms() {
		several = append(several, a.String()+"=x:3")
	}
	body := func(m proto.Message) string {
		out, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	taken := answering.take("gcra=z:2")
	for i, c := range []struct {
		d          *daemon
		path, body string
		code       int
	}{
		{answering, "/v1/take", body(taking(several...)), 200},
		{answering, "/v1/take", body(taking(several...)), 429},
		{answering, "/v1/take", body(taking("closed=x")), 429},
		{answering, "/v1/take", body(taking("gcra=x:9")), 429},
		{answering, "/v1/take", body(taking("unknown=x")), 200},
		{answering, "/v1/take", "{", 400},
		{answering, "/v1/take", `"` + strings.Repeat("x", 1<<20) + `"`, 400},
		{answering, "/v1/give-back", body(givingBack(taking("gcra=z:2"), taken)), 200},
		{answering, "/v1/give-back", body(givingBack(taking("gcra=z:2"), nil)), 409},
		{answering, "/v1/give-back", "[]", 400},
		{noRefunds, "/v1/give-back", body(givingBack(taking("gcra=z:2"), taken)), 403},
		{failing, "/v1/take", body(taking("gcra=x")), 503},
		{failing, "/v1/take", body(taking("gcra=x:2")), 500},
	} {
		t.Run(fmt.Sprint(c.path, " ", c.code, " ", i), func(t *testing.T) {
			p := c.d.fetch("POST", "http", c.path, strings.NewReader(c.body))
			if p.code != c.code || p.header.Get("Content-Type") != "application/json" {
				t.Errorf("%.200s: %d %s, want %d", c.body, p.code, p.body, c.code)
				return
			}
			r, known := doc.Paths[c.path]["post"].Responses[strconv.Itoa(c.code)]
			if r.Ref != "" {
				r, known = doc.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
			}
			if !known {
				t.Errorf("the document has no answer %d", c.code)
				return
			}
			var v any
			if err := json.Unmarshal([]byte(p.body), &v); err != nil {
				t.Fatal(err)
			}
			if found := doc.violations(r.Content["application/json"].Schema, "the answer", v); len(found) > 0 {
				t.Errorf("%.200s got %s: %v", c.body, p.body, found)
			}
			for name, h := range r.Headers {
				if value := p.header.Get(name); value != "" {
					if n, err := strconv.ParseFloat(value, 64); err != nil || len(doc.violations(h.Schema, name, n)) > 0 {
						t.Errorf("the header %s is %q", name, value)
					}
				}
			}
		})
	}
}
