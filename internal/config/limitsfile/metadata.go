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
	if len(target.Content) == 0 {
		return nil, true
	}
	return p.metadataFields(v, target, 1), true
}

// metadataFields returns the fields of the mapping n, which is at v.
func (p *reader) metadataFields(v yamlfile.Value, n *yaml.Node, depth int) map[string]any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := v.At(n.Content[i])
		k := p.Follow(key)
		if p.Spent() {
			break
		}
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" {
			p.Bad(key, yamlfile.DescribeNode(k)+" as a key", "a text; quotes make one of a number")
			continue
		}
		if _, again := m[k.Value]; again && !p.Lax(v.Child(k.Value, key.Node), "a second "+yamlfile.Quote(k.Value), "each key once", "the last one counts") {
			continue
		}
		m[k.Value] = p.metadataValue(v.Child(k.Value, n.Content[i+1]), depth+1)
	}
	return m
}

// metadataValue returns a value, or nil if it is refused.
func (p *reader) metadataValue(v yamlfile.Value, depth int) any {
	target := p.Follow(v)
	switch {
	case p.Spent():
		return nil
	case target.Kind == yaml.ScalarNode:
		return p.metadataScalar(v, target)
	case depth > maxMetadataDepth:
		p.Bad(v, "metadata within more than 31 mappings and lists", "fewer")
		return nil
	case target.Kind == yaml.MappingNode:
		return p.metadataFields(v, target, depth)
	}
	list := make([]any, len(target.Content))
	for i, item := range target.Content {
		list[i] = p.metadataValue(v.Item(i, item), depth+1)
	}
	return list
}

func (p *reader) metadataScalar(v yamlfile.Value, target *yaml.Node) any {
	switch target.Tag {
	case "!!null":
		return nil
	case "!!str", "!!timestamp":
		return target.Value
	case "!!bool":
		var truth bool
		if target.Decode(&truth) == nil {
			return truth
		}
	case "!!int", "!!float":
		var whole int64
		if target.Tag == "!!int" && target.Decode(&whole) == nil {
			return whole
		}
		var number float64 // whole numbers beyond 64 bits, too
		if target.Decode(&number) == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			return number
		}
	}
	p.Bad(v, yamlfile.DescribeNode(target), "a text, a number, true, false, nothing, a list or a mapping")
	return nil
}
