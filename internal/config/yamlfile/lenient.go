package yamlfile

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// again reports a field that a mapping has twice: after the key first it has k, with the
// value n. envoyproxy/ratelimit takes the last one, if the field is its own.
func (w *Reader) again(o *Object, f int, first, k, n *yaml.Node) {
	field := o.level.Fields[f]
	key, found := o.field(f, k), fmt.Sprintf("a second %s, the first is on line %d", field.Name, first.Line)
	if !o.level.Theirs || !field.Theirs {
		w.Bad(key, found, "one")
	} else if w.Lax(key, found, "one", "the last one counts") {
		o.set(f, k, n)
	}
}
