package envoyrls

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// appendMetadata appends the dynamic_metadata of a response, a Struct
// (google/protobuf/struct.proto) with the layout of envoyproxy/ratelimit's: what was
// asked, in domain, hitsAddend and descriptors, and what the rules say about it, in
// metadata. degraded is ours.
func (c *envoyCall) appendMetadata(dst []byte, degraded bool) []byte {
	if degraded {
		dst = appendField(dst, "degraded", func(dst []byte) []byte {
			return protowire.AppendVarint(protowire.AppendTag(dst, boolValue, wire.Varint), 1)
		})
	}
	dst = appendField(dst, "descriptors", func(dst []byte) []byte {
		return appendList(dst, len(c.Descriptors), func(dst []byte, i int) []byte {
			return appendMessage(dst, structValue, func(dst []byte) []byte { return appendDescriptor(dst, &c.Descriptors[i]) })
		})
	})
	dst = appendField(dst, "domain", func(dst []byte) []byte { return wire.AppendText(dst, stringValue, c.Domain) })
	if c.HitsAddend != 0 {
		dst = appendField(dst, "hitsAddend", func(dst []byte) []byte { return appendDouble(dst, float64(c.HitsAddend)) })
	}
	if m := c.metadata(); len(m) > 0 {
		dst = appendField(dst, "metadata", func(dst []byte) []byte { return appendValue(dst, m) })
	}
	return dst
}

// metadata returns the metadata of the rules that let their descriptors pass. If a name
// is in the metadata of several rules, the first one's value counts.
func (c *envoyCall) metadata() map[string]any {
	var all map[string]any
	merged := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		switch {
		case !o.IsRuled() || o.Rule.Metadata == nil:
		case len(o.Limits) == 0 && !o.IsUnlimited(): // replaced
		case o.IsOver() && !o.Shadow:
		case all == nil:
			all = o.Rule.Metadata
		default:
			if !merged {
				all, merged = maps.Clone(all), true // the rule keeps its own
			}
			mergeMetadata(all, o.Rule.Metadata)
		}
	}
	return all
}

// mergeMetadata adds to m the names in more that m lacks. It does not change the maps
// in m, which may belong to a rule.
func mergeMetadata(m, more map[string]any) {
	for k, v := range more {
		was, ok := m[k]
		if !ok {
			m[k] = v
			continue
		}
		inner, isMap := was.(map[string]any)
		if added, ok := v.(map[string]any); isMap && ok {
			inner = maps.Clone(inner)
			mergeMetadata(inner, added)
			m[k] = inner
		}
	}
}

// appendDescriptor appends the Struct of a descriptor, with its hits as they were sent:
// the hits of a refund are positive too.
func appendDescriptor(dst []byte, d *decide.Descriptor) []byte {
	dst = appendField(dst, "entries", func(dst []byte) []byte {
		return appendList(dst, len(d.Entries), func(dst []byte, i int) []byte {
			e := &d.Entries[i]
			dst, start := wire.BeginMessage(dst, stringValue)
			dst = append(append(append(dst, e.Key...), '='), strings.ToValidUTF8(e.Value, "\uFFFD")...)
			return wire.EndMessage(dst, start)
		})
	})
	if d.HasHitsAddend {
		dst = appendField(dst, "hitsAddend", func(dst []byte) []byte { return appendDouble(dst, float64(d.HitsAddend)) })
	}
	if d.Own.Set {
		dst = appendField(dst, "limit", func(dst []byte) []byte {
			dst, start := wire.BeginMessage(dst, stringValue)
			return wire.EndMessage(appendOwn(dst, &d.Own), start)
		})
	}
	return dst
}

// appendOwn appends an override in protobuf's text format, on one line.
func appendOwn(dst []byte, o *decide.Override) []byte {
	if o.Requests != 0 {
		dst = strconv.AppendUint(append(dst, "requests_per_unit:"...), uint64(o.Requests), 10)
		dst = append(dst, ' ')
	}
	dst = append(append(dst, "unit:"...), typev3.RateLimitUnit(o.Spelling.Unit).String()...)
	if o.Spelling.HasMultiplier {
		dst = strconv.AppendUint(append(dst, " unit_multiplier:{value:"...), uint64(o.Spelling.Multiplier), 10)
		dst = append(dst, '}')
	}
	return dst
}

// The kinds of a Value, by the numbers of their fields.
const (
	nullValue   protowire.Number = 1
	numberValue protowire.Number = 2
	stringValue protowire.Number = 3
	boolValue   protowire.Number = 4
	structValue protowire.Number = 5
	listValue   protowire.Number = 6
)

// appendField appends a field of a Struct; value appends the content of its
// Value.
func appendField(dst []byte, key string, value func([]byte) []byte) []byte {
	dst, start := wire.BeginMessage(dst, 1)
	dst = wire.AppendText(dst, 1, key)
	dst = appendMessage(dst, 2, value)
	return wire.EndMessage(dst, start)
}

// appendList appends the content of a Value that is a list of n; value appends that of
// each element.
func appendList(dst []byte, n int, value func(dst []byte, i int) []byte) []byte {
	dst, list := wire.BeginMessage(dst, listValue)
	for i := range n {
		var start int
		dst, start = wire.BeginMessage(dst, 1)
		dst = wire.EndMessage(value(dst, i), start)
	}
	return wire.EndMessage(dst, list)
}

// appendValue appends the content of a Value, for a value that a rule's metadata can
// have.
func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return protowire.AppendVarint(protowire.AppendTag(dst, boolValue, wire.Varint), protowire.EncodeBool(v))
	case int64:
		return appendDouble(dst, float64(v))
	case float64:
		return appendDouble(dst, v)
	case string:
		return wire.AppendText(dst, stringValue, v)
	case []any:
		return appendList(dst, len(v), func(dst []byte, i int) []byte { return appendValue(dst, v[i]) })
	case map[string]any:
		return appendMessage(dst, structValue, func(dst []byte) []byte {
			for _, k := range slices.Sorted(maps.Keys(v)) {
				dst = appendField(dst, k, func(dst []byte) []byte { return appendValue(dst, v[k]) })
			}
			return dst
		})
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, nullValue, wire.Varint), 0)
}

func appendMessage(dst []byte, field protowire.Number, content func([]byte) []byte) []byte {
	dst, start := wire.BeginMessage(dst, field)
	return wire.EndMessage(content(dst), start)
}

func appendDouble(dst []byte, f float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(dst, numberValue, protowire.Fixed64Type), math.Float64bits(f))
}

// metadataBound returns no less than the bytes of the metadata.
func metadataBound(c *decide.Call) int {
	const (
		each     = 256 // of a descriptor
		entry    = 24
		longText = 3 // bytes for each byte that is not UTF-8
	)
	n := each + len(c.Domain)
	for i := range c.Descriptors {
		n += each
		for _, e := range c.Descriptors[i].Entries {
			n += entry + len(e.Key) + longText*len(e.Value)
		}
		if r := c.Outcomes[i].Rule; r != nil && r.Metadata != nil {
			n += valueBound(r.Metadata)
		}
	}
	return n
}

// valueBound returns no less than the bytes of a value of a rule's metadata.
func valueBound(v any) int {
	const head = 16 // of a field and its value, with their lengths
	n := head
	switch v := v.(type) {
	case string:
		n += len(v)
	case []any:
		for _, item := range v {
			n += valueBound(item)
		}
	case map[string]any:
		for k, item := range v {
			n += head + len(k) + valueBound(item)
		}
	}
	return n
}
