package limitsfile

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// unites reports whether second, whose descriptor is o, becomes a part of first, which
// has the same entry. It does so where envoyproxy/ratelimit's format is read leniently,
// exactly one of them has the limit, and at most one has descriptors below it. Otherwise
// it reports an error.
func (p *reader) unites(first, second *rules.Node, o *yamlfile.Object, item yamlfile.Value) bool {
	const allowed = "each key with each value once in a list"
	again := fmt.Sprintf("%s again, the first is on line %d", entryText(second.Entry()), first.Line())
	if p.Made {
		again = fmt.Sprintf("%s again, the first is %s", entryText(second.Entry()), item.Sibling(first.Line()))
	}
	if !first.HasNetworksOf(second) {
		p.Bad(item, again, allowed)
		return false
	}
	limited := p.isLimited(o)
	if limited == (first.Rule() != nil) || o.Has("descriptors") && first.HasBelow() {
		p.Bad(item, again, allowed)
		return false
	}
	return p.Lax(item, again, allowed, "they are added together, since only one has a limit")
}
