package xds

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

func failing(err error) func() (limitsfile.Tree, error) {
	return func() (limitsfile.Tree, error) { return limitsfile.Tree{}, err }
}

// tree returns the domain as the tree that a limits file would have, so everything that
// holds for files holds for it.
func (r *resource) tree() (limitsfile.Tree, error) {
	var c xdsv3.RateLimitConfig
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.content, &c); err != nil {
		return limitsfile.Tree{}, fmt.Errorf("bytes that are no RateLimitConfig: %w", err)
	}
	b := &builder{lists: make(map[*yaml.Node][]*xdsv3.RateLimitDescriptor)}
	root := b.mapping()
	b.add(root, "domain", b.text(c.GetDomain()))
	b.descriptors(root, c.GetDescriptors())
	return limitsfile.Tree{Root: root, Items: b.items}, nil
}

// builder makes nodes.
type builder struct {
	// lists are the lists of descriptors whose items are not made yet.
	lists map[*yaml.Node][]*xdsv3.RateLimitDescriptor
}

// items returns the items of a list, made one by one, or nil if they were already made.
func (b *builder) items(list *yaml.Node) iter.Seq[*yaml.Node] {
	descriptors, ok := b.lists[list]
	if !ok {
		return nil
	}
	delete(b.lists, list)
	return func(yield func(*yaml.Node) bool) {
		for _, d := range descriptors {
			if !yield(b.descriptor(d)) {
				return
			}
		}
	}
}

// Scalars that occur in many places are one node each. They are never changed.
var (
	keyNodes = textNodes("domain", "descriptors", "key", "value", "rate_limit", "shadow_mode", "quota_mode", "detailed_metric", "metadata",
		"unlimited", "requests_per_unit", "unit", "name", "replaces")
	unitNodes = map[xdsv3.RateLimitUnit]*yaml.Node{
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_SECOND: scalar("!!str", "second"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_MINUTE: scalar("!!str", "minute"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_HOUR:   scalar("!!str", "hour"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_DAY:    scalar("!!str", "day"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_WEEK:   scalar("!!str", "week"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_MONTH:  scalar("!!str", "month"),
		xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_YEAR:   scalar("!!str", "year"),
	}
	trueNode = scalar("!!bool", "true")
)

func textNodes(texts ...string) map[string]*yaml.Node {
	nodes := make(map[string]*yaml.Node, len(texts))
	for _, text := range texts {
		nodes[text] = scalar("!!str", text)
	}
	return nodes
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func (b *builder) scalar(tag, value string) *yaml.Node {
	return scalar(tag, value)
}

func (b *builder) text(s string) *yaml.Node { return b.scalar("!!str", s) }

func (b *builder) mapping() *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
}

func (b *builder) sequence(length int) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: make([]*yaml.Node, 0, length)}
}

// add adds a field to a mapping.
func (b *builder) add(m *yaml.Node, key string, value *yaml.Node) {
	m.Content = append(m.Content, keyNodes[key], value)
}

func (b *builder) flag(m *yaml.Node, key string, set bool) {
	if set {
		b.add(m, key, trueNode)
	}
}

func (b *builder) descriptors(m *yaml.Node, list []*xdsv3.RateLimitDescriptor) {
	if len(list) == 0 {
		return
	}
	items := b.sequence(0)
	b.lists[items] = list
	b.add(m, "descriptors", items)
}

func (b *builder) descriptor(d *xdsv3.RateLimitDescriptor) *yaml.Node {
	m := b.mapping()
	b.add(m, "key", b.text(d.GetKey()))
	if d.GetValue() != "" {
		b.add(m, "value", b.text(d.GetValue()))
	}
	if d.GetRateLimit() != nil {
		b.add(m, "rate_limit", b.policy(d.GetRateLimit()))
	}
	b.flag(m, "shadow_mode", d.GetShadowMode())
	b.flag(m, "quota_mode", d.GetQuotaMode())
	b.flag(m, "detailed_metric", d.GetDetailedMetric())
	if d.GetMetadata() != nil {
		b.add(m, "metadata", b.structure(d.GetMetadata()))
	}
	b.descriptors(m, d.GetDescriptors())
	return m
}

func (b *builder) policy(p *xdsv3.RateLimitPolicy) *yaml.Node {
	m := b.mapping()
	if p.GetName() != "" {
		b.add(m, "name", b.text(p.GetName()))
	}
	b.flag(m, "unlimited", p.GetUnlimited())
	if !p.GetUnlimited() || p.GetRequestsPerUnit() != 0 {
		b.add(m, "requests_per_unit", b.scalar("!!int", strconv.FormatUint(uint64(p.GetRequestsPerUnit()), 10)))
	}
	if !p.GetUnlimited() || p.GetUnit() != 0 {
		unit := unitNodes[p.GetUnit()]
		if unit == nil {
			unit = b.scalar("!!int", strconv.Itoa(int(p.GetUnit())))
		}
		b.add(m, "unit", unit)
	}
	if len(p.GetReplaces()) > 0 {
		items := b.sequence(len(p.GetReplaces()))
		for _, r := range p.GetReplaces() {
			item := b.mapping()
			b.add(item, "name", b.text(r.GetName()))
			items.Content = append(items.Content, item)
		}
		b.add(m, "replaces", items)
	}
	return m
}

// structure returns metadata with its keys sorted.
func (b *builder) structure(s *structpb.Struct) *yaml.Node {
	m := b.mapping()
	for _, key := range slices.Sorted(maps.Keys(s.GetFields())) {
		m.Content = append(m.Content, b.text(key), b.value(s.GetFields()[key]))
	}
	return m
}

func (b *builder) value(v *structpb.Value) *yaml.Node {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return b.text(kind.StringValue)
	case *structpb.Value_BoolValue:
		return b.scalar("!!bool", strconv.FormatBool(kind.BoolValue))
	case *structpb.Value_NumberValue:
		return b.number(kind.NumberValue)
	case *structpb.Value_StructValue:
		return b.structure(kind.StructValue)
	case *structpb.Value_ListValue:
		items := b.sequence(len(kind.ListValue.GetValues()))
		for _, item := range kind.ListValue.GetValues() {
			items.Content = append(items.Content, b.value(item))
		}
		return items
	}
	return b.scalar("!!null", "")
}

// number returns a number as it would be in a file: integers without a fraction.
func (b *builder) number(n float64) *yaml.Node {
	switch {
	case math.IsNaN(n):
		return b.scalar("!!float", ".nan")
	case math.IsInf(n, 0):
		return b.scalar("!!float", ".inf")
	case n == math.Trunc(n) && math.Abs(n) < 1<<53:
		return b.scalar("!!int", strconv.FormatInt(int64(n), 10))
	}
	return b.scalar("!!float", strconv.FormatFloat(n, 'g', -1, 64))
}
