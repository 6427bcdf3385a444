package config

import "sync/atomic"

// Tally counts what the descriptors that matched a rule got. Its counts never
// fall.
//
// A rule that is again in the files of a later load, which is one with the
// same path in a domain of the same name, has the tally it had before. So what
// a request counts that began with the older rules is not lost.
type Tally struct {
	Allowed, Denied atomic.Uint64
}

// keepTallies gives the rules the tallies that they have in the rules before,
// which may be nil. It is called before the rules are in force.
func (r *Rules) keepTallies(before *Rules) {
	if before == nil {
		return
	}
	for name, d := range r.domains {
		if old := before.domains[name]; old != nil {
			d.root.keepTallies(old.root)
		}
	}
}

func (n *node) keepTallies(before *node) {
	if n.rule != nil && before.rule != nil {
		n.rule.Tally = before.rule.Tally
	}
	for entry, next := range n.exact {
		if old := before.exact[entry]; old != nil {
			next.keepTallies(old)
		}
	}
	for i := range n.keys {
		k := &n.keys[i]
		old := before.key(k.key)
		if old == nil {
			continue
		}
		if k.bare != nil && old.bare != nil {
			k.bare.keepTallies(old.bare)
		}
		k.patterns.keepTallies(old.patterns)
	}
}

func (ps patterns) keepTallies(before patterns) {
	if len(ps.list) == 0 || len(before.list) == 0 {
		return
	}
	nodes := make(map[string]*node, len(before.list))
	for i := range before.list {
		nodes[before.list[i].text()] = before.list[i].node
	}
	for i := range ps.list {
		if old := nodes[ps.list[i].text()]; old != nil {
			ps.list[i].node.keepTallies(old)
		}
	}
}
