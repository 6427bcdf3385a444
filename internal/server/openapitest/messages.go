package openapitest

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ratelimitd/ratelimitd/proto/apijson"
)

// SchemaRef is what references to schemas begin with.
const SchemaRef = "#/components/schemas/"

// Reach collects a message and all messages in it, by name.
func Reach(messages map[string]protoreflect.MessageDescriptor, m protoreflect.MessageDescriptor) {
	name := string(m.Name())
	if messages[name] != nil || m.ParentFile().Package() == "google.protobuf" {
		return
	}
	messages[name] = m
	for i := range m.Fields().Len() {
		if of := m.Fields().Get(i).Message(); of != nil {
			Reach(messages, of)
		}
	}
}

// Bare returns the schema without the parts for people.
func (s *Schema) Bare() *Schema {
	b := *s
	b.Description, b.Examples = "", nil
	return &b
}

// SchemaOf returns the schema of a field in JSON, as apijson writes it.
func SchemaOf(f protoreflect.FieldDescriptor) *Schema {
	s := new(Schema)
	switch f.Kind() {
	case protoreflect.BoolKind:
		s.Type = "boolean"
	case protoreflect.StringKind:
		s.Type = "string"
	case protoreflect.Uint32Kind:
		s.Type, s.Format = "integer", "uint32"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		s.Type, s.Format = "string", "uint64"
		if apijson.IsNumber(f) {
			s.Type = "integer"
		}
	case protoreflect.Int64Kind:
		s.Type, s.Format = "string", "int64"
	case protoreflect.MessageKind:
		s.Ref = SchemaRef + string(f.Message().Name())
	case protoreflect.EnumKind:
		s.Type = "string"
		for i := range f.Enum().Values().Len() {
			s.Enum = append(s.Enum, string(f.Enum().Values().Get(i).Name()))
		}
	}
	if f.IsList() {
		return &Schema{Type: "array", Items: s}
	}
	return s
}
