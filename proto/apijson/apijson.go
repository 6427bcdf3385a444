// Package apijson writes messages of the API in JSON, as protojson does but with numbers as
// numbers: protojson writes 64-bit integers as texts. The numbers of limits, and costs, are
// at most 2^52, which every reader of JSON reads exactly. Other 64-bit integers, such as the
// moments that a give-back names, and counts since a daemon's start, stay texts. protojson
// reads both. It imports nothing of the project.
package apijson

import (
	"bytes"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// IsNumber reports whether a field is a number of a limit, or a cost.
func IsNumber(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.Uint64Kind && isName(string(f.Name())) && isOfAPI(f.Parent())
}

// isName reports whether fields of this name are numbers, unless they hold messages. All
// names are the same in JSON and in .proto files.
func isName(name string) bool {
	switch name {
	case "requests", "burst", "capacity", "remaining", "cost", "returned", "added", "takes", "lease", "granted":
		return true
	}
	return false
}

func isOfAPI(d protoreflect.Descriptor) bool {
	return strings.HasPrefix(string(d.ParentFile().Package()), "ratelimit.")
}

// Marshal returns a message as protojson writes it with these options, except that numbers
// are numbers. Messages that are not of the API are as protojson writes
// them.
func Marshal(o protojson.MarshalOptions, m proto.Message) ([]byte, error) {
	text, err := o.Marshal(m)
	if err != nil || !isOfAPI(m.ProtoReflect().Descriptor()) {
		return text, err
	}
	return unquote(text, func(name, _ []byte) bool { return isName(string(name)) }), nil
}

// MarshalAll returns a message as protojson writes it with these options, except that all
// integers up to 2^53 are numbers, whatever they mean.
func MarshalAll(o protojson.MarshalOptions, m proto.Message) ([]byte, error) {
	text, err := o.Marshal(m)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	addNames(names, make(map[protoreflect.FullName]bool), o.UseProtoNames, m.ProtoReflect().Descriptor())
	return unquote(text, func(name, value []byte) bool {
		n, err := strconv.ParseInt(string(value), 10, 64)
		return names[string(name)] && err == nil && n <= maxExact && n >= -maxExact
	}), nil
}

// maxExact is the largest integer up to which every reader of JSON reads all exactly.
const maxExact = 1 << 53

// addNames sets for the name of each field of a message, and of those in it, whether only
// integers have it.
func addNames(names map[string]bool, seen map[protoreflect.FullName]bool, asInProto bool, m protoreflect.MessageDescriptor) {
	if seen[m.FullName()] {
		return
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := f.JSONName()
		if asInProto {
			name = string(f.Name())
		}
		if f.Message() != nil {
			addNames(names, seen, asInProto, f.Message())
		}
		isInteger := true
		switch f.Kind() {
		case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.EnumKind:
			isInteger = false
		}
		was, isKnown := names[name]
		names[name] = isInteger && (was || !isKnown)
	}
}

// unquote takes the quotes off the values that are numbers, in place. In JSON only the name of a
// field precedes a colon, and the API has no fields whose names callers choose.
func unquote(text []byte, isNumber func(name, value []byte) bool) []byte {
	out := text[:0]
	for {
		before, s, rest := cutString(text)
		out, text = append(append(out, before...), s...), rest
		if s == nil {
			return out
		}
		name := out[len(out)-len(s)+1 : len(out)-1]
		colon, number, rest := cutString(text)
		if number != nil && string(bytes.Trim(colon, " ")) == ":" && isNumber(name, number[1:len(number)-1]) {
			out, text = append(append(out, colon...), number[1:len(number)-1]...), rest
		}
	}
}

// cutString cuts JSON at its first string, which keeps its quotes; nil if there is none.
func cutString(text []byte) (before, s, after []byte) {
	start := bytes.IndexByte(text, '"')
	if start < 0 {
		return text, nil, nil
	}
	end := start + 1
	for text[end] != '"' {
		if text[end] == '\\' {
			end++
		}
		end++
	}
	return text[:start], text[start : end+1], text[end+1:]
}
