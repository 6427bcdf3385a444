package limitsfile

import (
	"math"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// maxMetadataDepth is how deep mappings and lists may nest in metadata.
const maxMetadataDepth = 32

// metadata reads a mapping that is passed to callers as it is. One without keys counts as
// absent.
func (p *reader) metadata(v yamlfile.Value) (map[string]any, bool) {
	target := p.Follow(v)
	if p.Spent() {
		return nil, false
	}
	if target.Kind != yaml.MappingNode {
		p.Bad(v, yamlfile.DescribeNode(target), "a mapping")
		return nil, false
	}
	m := make(map[string]any, len(target.Content)/2)
	p.metadataFields(m, v, target, 1)
	if len(m) == 0 {
		m = nil
	}
	return m, true
}

// metadataFields adds the fields of the mapping n that m does not have yet, then those of
// the mappings that n merges. They are fields of v.
func (p *reader) metadataFields(m map[string]any, v yamlfile.Value, n *yaml.Node, depth int) {
	own := make(map[string]bool, len(n.Content)/2)
	var merge *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := v.At(n.Content[i])
		k := p.Follow(key)
		if p.Spent() {
			return
		}
		switch {
		case k.Kind == yaml.ScalarNode && k.Tag == "!!merge" && merge == nil:
			merge = n.Content[i+1]
			continue
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str":
			p.Bad(key, yamlfile.DescribeNode(k)+" as a key", "a text; quotes make one of a number")
			continue
		case own[k.Value]:
			if !p.Lax(v.Child(k.Value, key.Node), "a second "+yamlfile.Quote(k.Value), "each key once", "the last one counts") {
				continue
			}
		default:
			if _, ok := m[k.Value]; ok {
				continue
			}
		}
		own[k.Value] = true
		if value, ok := p.metadataValue(v.Child(k.Value, n.Content[i+1]), depth+1); ok {
			m[k.Value] = value
		}
	}
	if merge != nil {
		p.mergeMetadata(m, v.Child("<<", merge), depth+1)
	}
}

func (p *reader) mergeMetadata(m map[string]any, v yamlfile.Value, depth int) {
	target := p.Follow(v)
	switch {
	case p.Spent():
	case depth > maxMetadataDepth:
		p.tooDeep(v)
	case target.Kind == yaml.MappingNode:
		p.metadataFields(m, v, target, depth)
	case target.Kind == yaml.SequenceNode:
		for i, item := range target.Content {
			p.mergeMetadata(m, v.Item(i, item), depth+1)
		}
	default:
		p.Bad(v, yamlfile.DescribeNode(target), "an alias of a mapping, or a list of them")
	}
}

func (p *reader) tooDeep(v yamlfile.Value) {
	p.Bad(v, "metadata within more than 31 mappings and lists", "fewer")
}

func (p *reader) metadataValue(v yamlfile.Value, depth int) (any, bool) {
	target := p.Follow(v)
	switch {
	case p.Spent():
		return nil, false
	case target.Kind == yaml.ScalarNode:
		return p.metadataScalar(v, target)
	case depth > maxMetadataDepth:
		p.tooDeep(v)
		return nil, false
	case target.Kind == yaml.MappingNode:
		m := make(map[string]any, len(target.Content)/2)
		p.metadataFields(m, v, target, depth)
		return m, true
	}
	list := make([]any, 0, len(target.Content))
	for i, item := range target.Content {
		if value, ok := p.metadataValue(v.Item(i, item), depth+1); ok {
			list = append(list, value)
		}
	}
	return list, true
}

func (p *reader) metadataScalar(v yamlfile.Value, target *yaml.Node) (any, bool) {
	switch target.Tag {
	case "!!null":
		return nil, true
	case "!!str", "!!timestamp":
		return target.Value, true
	case "!!bool":
		var truth bool
		if target.Decode(&truth) == nil {
			return truth, true
		}
	case "!!int", "!!float":
		var whole int64
		if target.Tag == "!!int" && target.Decode(&whole) == nil {
			return whole, true
		}
		var number float64 // whole numbers beyond 64 bits, too
		if target.Decode(&number) == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			return number, true
		}
	}
	p.Bad(v, yamlfile.DescribeNode(target), "a text, a number, true, false, nothing, a list or a mapping")
	return nil, false
}
