package adminapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// repeated are the parameters that may come more than once, and the fields that they are.
var repeated = map[string]protoreflect.Name{"entry": "entries", "remove": "remove", "remove_limit": "remove_limits"}

// readQuery reads a query that has no other parameters than these. Its error is a status.
func readQuery(r *http.Request, names ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, endpoint.Invalid("the query cannot be read: %v", err)
	}
	allowed := yamlfile.Commas(names)
	if len(names) == 0 {
		allowed = "none"
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		_, isRepeated := repeated[name]
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead && len(names) == 0: // the body says it all
		case !slices.Contains(names, name):
			return nil, endpoint.Invalid("the query: found the parameter %.100q%s; allowed: %s", name, nearest(name, names), allowed)
		case len(values[name]) > 1 && !isRepeated:
			return nil, endpoint.Invalid("%s: found it %d times; allowed: once", name, len(values[name]))
		}
	}
	return values, nil
}

// queryParser puts the parameters of a query, which are known to be allowed, into the
// fields of a request. The generated handlers make its errors statuses.
type queryParser struct{}

// setQueryParser has all of the generated handlers use a queryParser. The library keeps
// the parser in a variable of its package, so servers that start together must not each
// write it.
var setQueryParser = sync.OnceFunc(func() {
	runtime.NewServeMux(runtime.SetQueryParameterParser(queryParser{}))
})

// Parse implements runtime.QueryParameterParser.
func (queryParser) Parse(request proto.Message, values url.Values, _ *utilities.DoubleArray) error {
	messages := []proto.Message{request}
	var one *adminv1.Assignment
	switch r := request.(type) {
	// The decoder of the body (answerJSON) has made these lists of one, or has failed.
	case *adminv1.PutAssignmentsRequest:
		one = r.Puts[0].Assignment
		messages = append(messages, r.Puts[0], one)
	case *adminv1.PatchAssignmentsRequest:
		one = r.Patches[0].Assignment
		messages = append(messages, r.Patches[0], one)
	}
	inBody := &adminv1.Assignment{Domain: one.GetDomain(), Entries: one.GetEntries()}
	if one != nil {
		one.Domain, one.Entries = "", nil
	}
	for name, texts := range values {
		field := protoreflect.Name(name)
		if repeated[name] != "" {
			field = repeated[name]
		}
		at := slices.IndexFunc(messages, func(m proto.Message) bool { return m.ProtoReflect().Descriptor().Fields().ByName(field) != nil })
		m := messages[at].ProtoReflect()
		if err := setField(m, m.Descriptor().Fields().ByName(field), name, texts); err != nil {
			return err
		}
	}
	// The subject of the body must be that of the query, if it has one.
	if inBody.Domain != "" && inBody.Domain != one.Domain ||
		len(inBody.Entries) > 0 && !slices.Equal(assignmsg.Entries(inBody.Entries), assignmsg.Entries(one.Entries)) {
		return errors.New("the body: found other domain or entries than in the query; allowed: the same, or none")
	}
	return nil
}

// setField sets a field to the values of the parameter name. An empty value is the
// field's default.
func setField(m protoreflect.Message, field protoreflect.FieldDescriptor, name string, texts []string) error {
	for _, text := range texts {
		value, err := fieldValue(field, name, text)
		if err != nil {
			return err
		}
		if field.IsList() {
			m.Mutable(field).List().Append(value)
		} else {
			m.Set(field, value)
		}
	}
	return nil
}

// fieldValue reads one value of a field. A key of an entry that has a = in it cannot be
// written this way; gRPC and bodies in JSON take it.
func fieldValue(field protoreflect.FieldDescriptor, name, text string) (value protoreflect.Value, err error) {
	found := func(allowed string) error { return fmt.Errorf("%s: found %.100q; allowed: %s", name, text, allowed) }
	switch field.Kind() {
	case protoreflect.BoolKind:
		if text != "" && text != "true" && text != "false" {
			err = found("true or false")
		}
		return protoreflect.ValueOfBool(text == "true"), err
	case protoreflect.Uint32Kind:
		n, failed := strconv.ParseUint(text, 10, 32)
		if failed != nil && text != "" {
			err = found("a number")
		}
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.EnumKind:
		words := wordsOf[field.Enum().Name()]
		n, ok := words[text]
		if !ok && (text != "" || field.IsList()) {
			err = found(yamlfile.Commas(slices.Sorted(maps.Keys(words))))
		}
		return protoreflect.ValueOfEnum(n), err
	case protoreflect.MessageKind:
		key, value, hasValue := strings.Cut(text, "=")
		if !hasValue {
			err = found("KEY=VALUE, or KEY= for an empty value")
		}
		return protoreflect.ValueOfMessage((&ratelimitv1.Entry{Key: key, Value: value}).ProtoReflect()), err
	default:
		return protoreflect.ValueOfString(text), nil
	}
}

// wordsOf has the words for the values of enums.
var wordsOf = map[protoreflect.Name]map[string]protoreflect.EnumNumber{
	"Part": numbers(map[string]adminv1.Part{
		"block": adminv1.Part_PART_BLOCK, "terms": adminv1.Part_PART_TERMS, "plan": adminv1.Part_PART_PLAN,
		"unlimited": adminv1.Part_PART_UNLIMITED, "numbers": adminv1.Part_PART_NUMBERS, "calendar": adminv1.Part_PART_CALENDAR,
		"temporary": adminv1.Part_PART_TEMPORARY,
	}),
	"TopBy":     numbers(TopBys),
	"TopWindow": numbers(TopWindows),
}

func numbers[E protoreflect.Enum](words map[string]E) map[string]protoreflect.EnumNumber {
	all := make(map[string]protoreflect.EnumNumber, len(words))
	for word, value := range words {
		all[word] = value.Number()
	}
	return all
}
