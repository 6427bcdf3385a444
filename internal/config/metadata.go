package config

import (
	"math"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// maxMetadataDepth is how deep mappings and lists may nest in metadata.
const maxMetadataDepth = 32

// metadata reads a mapping that is handed to callers as it is. One without
// keys is as if it were not there.
func (p *fileParser) metadata(n *yaml.Node, at *yamlfile.Path) (map[string]any, bool) {
	target := p.Follow(n, at)
	if p.Spent() {
		return nil, false
	}
	if target.Kind != yaml.MappingNode {
		p.Bad(n, at, yamlfile.DescribeNode(target), "a mapping")
		return nil, false
	}
	m := make(map[string]any, len(target.Content)/2)
	p.metadataFields(m, target, at, 1)
	if len(m) == 0 {
		m = nil
	}
	return m, true
}

// metadataFields adds the fields of a mapping that m does not have yet, then
// those of the mappings that it merges.
func (p *fileParser) metadataFields(m map[string]any, n *yaml.Node, at *yamlfile.Path, depth int) {
	own := make(map[string]bool, len(n.Content)/2)
	var merge *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := p.Follow(n.Content[i], at)
		if p.Spent() {
			return
		}
		switch {
		case k.Kind == yaml.ScalarNode && k.Tag == "!!merge" && merge == nil:
			merge = n.Content[i+1]
			continue
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str":
			p.Bad(n.Content[i], at, yamlfile.DescribeNode(k)+" as a key", "a text; quotes make one of a number")
			continue
		case own[k.Value]:
			if !p.Lax(n.Content[i], at.Key(k.Value), "a second "+yamlfile.Quote(k.Value), "each key once", "the last one counts") {
				continue
			}
		default:
			if _, ok := m[k.Value]; ok {
				continue
			}
		}
		own[k.Value] = true
		if v, ok := p.metadataValue(n.Content[i+1], at.Key(k.Value), depth+1); ok {
			m[k.Value] = v
		}
	}
	if merge != nil {
		p.mergeMetadata(m, merge, at.Key("<<"), depth+1)
	}
}

func (p *fileParser) mergeMetadata(m map[string]any, n *yaml.Node, at *yamlfile.Path, depth int) {
	target := p.Follow(n, at)
	switch {
	case p.Spent():
	case depth > maxMetadataDepth:
		p.tooDeep(n, at)
	case target.Kind == yaml.MappingNode:
		p.metadataFields(m, target, at, depth)
	case target.Kind == yaml.SequenceNode:
		for i, item := range target.Content {
			p.mergeMetadata(m, item, at.Item(i), depth+1)
		}
	default:
		p.Bad(n, at, yamlfile.DescribeNode(target), "an alias of a mapping, or a list of them")
	}
}

func (p *fileParser) tooDeep(n *yaml.Node, at *yamlfile.Path) {
	p.Bad(n, at, "metadata within more than 31 mappings and lists", "fewer")
}

func (p *fileParser) metadataValue(n *yaml.Node, at *yamlfile.Path, depth int) (any, bool) {
	target := p.Follow(n, at)
	switch {
	case p.Spent():
		return nil, false
	case target.Kind == yaml.ScalarNode:
		return p.metadataScalar(n, target, at)
	case depth > maxMetadataDepth:
		p.tooDeep(n, at)
		return nil, false
	case target.Kind == yaml.MappingNode:
		m := make(map[string]any, len(target.Content)/2)
		p.metadataFields(m, target, at, depth)
		return m, true
	}
	list := make([]any, 0, len(target.Content))
	for i, item := range target.Content {
		if v, ok := p.metadataValue(item, at.Item(i), depth+1); ok {
			list = append(list, v)
		}
	}
	return list, true
}

func (p *fileParser) metadataScalar(n, target *yaml.Node, at *yamlfile.Path) (any, bool) {
	switch target.Tag {
	case "!!null":
		return nil, true
	case "!!str", "!!timestamp":
		return target.Value, true
	case "!!bool":
		var v bool
		if target.Decode(&v) == nil {
			return v, true
		}
	case "!!int", "!!float":
		var whole int64
		if target.Tag == "!!int" && target.Decode(&whole) == nil {
			return whole, true
		}
		var v float64 // whole numbers beyond 64 bits, too
		if target.Decode(&v) == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v, true
		}
	}
	p.Bad(n, at, yamlfile.DescribeNode(target), "a text, a number, true, false, nothing, a list or a mapping")
	return nil, false
}
