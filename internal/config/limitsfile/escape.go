package limitsfile

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// warnEscapes warns of the first descriptor of each key that takes requests from a less
// specific one of the list, but has no rule for all of those that the other has.
func (p *reader) warnEscapes(up *rules.Node, list []listedNode) {
	warned := make(map[string]bool)
	for _, n := range list {
		hidden := hiddenBy(up, n.Node)
		if hidden == nil || !hidden.HasBelow() || warned[n.Entry().Key] {
			continue
		}
		if n.Rule() != nil && n.Rule().Unlimited && !n.HasBelow() {
			continue // exempt on purpose
		}
		if missing := uncovered(hidden, n.Node); missing != nil {
			warned[n.Entry().Key] = true
			p.WarnAt(n.at, "requests with this value match here, and never reach the rule %s, which is not repeated here: they have no limit there", rules.PathText(missing.Entries()))
		}
	}
}

// hiddenBy returns the descriptor that the requests of n would match without it, or nil.
func hiddenBy(up, n *rules.Node) *rules.Node {
	k := up.Key(n.Entry().Key)
	if k == nil || n.Entry().Value == "" {
		return nil
	}
	if n.IsExact() {
		if i := k.Globs().First(n.Entry().Value); i >= 0 {
			return k.Patterns()[i]
		}
	} else if k.Globs().FirstThatCoversAll() >= 0 {
		return nil // the bare key never matches, which is another warning
	}
	return k.Bare()
}

// uncovered returns the first descriptor below general that has a rule, if special has
// none for its requests.
func uncovered(general, special *rules.Node) *rules.Node {
	for _, g := range slices.SortedFunc(general.Below, (*rules.Node).Compare) {
		s := counterpart(special, g)
		if g.Rule() != nil && s.Rule() == nil {
			return g
		}
		if missing := uncovered(g, s); missing != nil {
			return missing
		}
	}
	return nil
}

// counterpart returns the descriptor below n that matches all that g does, or an empty
// one.
func counterpart(n, g *rules.Node) *rules.Node {
	entry := g.Entry()
	found := new(rules.Node)
	if g.IsExact() {
		if next := n.Next(&entry); next != nil {
			found = next
		}
		return found
	}
	k := n.Key(entry.Key)
	if k == nil {
		return found
	}
	covering := k.Globs().FirstThatCoversAll()
	if entry.Value != "" {
		covering = k.Globs().FirstThatCovers(entry.Value)
	}
	switch {
	case covering >= 0:
		found = k.Patterns()[covering]
	case k.Bare() != nil:
		found = k.Bare()
	}
	return found
}
