package rules

import (
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Follow makes the rules continue where the previous ones leave off: a rule with the same
// path keeps its counts, and its Since if its limits are unchanged too. Everything else
// is new since now. before may be nil. Follow is called before the rules are in force.
func (r *Set) Follow(before *Set, now int64) {
	if before == nil {
		return
	}
	for name, d := range r.domains {
		reload.Yield()
		d.Since = now
		for _, rule := range d.rules {
			rule.Since = now
		}
		if old := before.domains[name]; old != nil {
			d.WithoutRule = old.WithoutRule
			same := d.HashTag == old.HashTag // otherwise all keys are elsewhere
			if same && d.Algorithm == old.Algorithm && d.Unmatched == old.Unmatched {
				d.Since = old.Since
			}
			d.root.follow(old.root, same)
		}
	}
	r.shareRoom(before)
}

// shareRoom makes the counts share the room for values with those of the previous rules.
// Rules that are gone give up their room.
func (r *Set) shareRoom(before *Set) {
	r.room = before.room
	kept := make(map[*tally.RuleCounts]bool)
	for _, d := range r.sorted {
		reload.Yield()
		for _, rule := range d.rules {
			if rule.Counts.Enter(before.room) {
				kept[rule.Counts] = true
			}
		}
	}
	for _, d := range before.sorted {
		reload.Yield()
		for _, rule := range d.rules {
			if !kept[rule.Counts] {
				rule.Counts.Leave()
			}
		}
	}
}

// follow does so for the rules at a node and below. same is false if other rules were in
// force for some of its descriptors before.
func (n *Node) follow(before *Node, same bool) {
	same = same && n.HasNetworksOf(before)
	if n.rule != nil && before.rule != nil {
		n.rule.follow(before.rule, same)
	}
	for entry, next := range n.exact {
		if old := before.exact[entry]; old != nil {
			next.follow(old, same)
		}
	}
	gone := n.valuesGone(before)
	for i := range n.keys {
		k := &n.keys[i]
		old := before.Key(k.name)
		if old == nil {
			continue
		}
		// The descriptors that matched a value or pattern that is now gone match what
		// comes after it.
		same := same && !gone[k.name] && k.cidrs.keep(old.cidrs)
		for _, n := range k.CIDRs() {
			if first := before.WithCIDR(n.entry); first != nil && first.entry == n.entry {
				n.follow(first, same)
			}
		}
		same = same && k.patterns.keep(&old.patterns)
		if k.bare != nil && old.bare != nil {
			k.bare.follow(old.bare, same)
		}
		k.patterns.follow(&old.patterns, same)
	}
}

// follow does so for a rule. Its plans follow the plans of the same names.
func (r *Rule) follow(before *Rule, same bool) {
	if r.Plans != nil && before.Plans != nil {
		// A changed default applies to everyone whose plan is unset or gone.
		same = same && r.Plans.Default.name() == before.Plans.Default.name() && r.Plans.keep(before.Plans)
		for _, plan := range r.Plans.all {
			if old := before.Plans.Plan(plan.Plan); old != nil {
				plan.follow(old, same)
			}
		}
		return
	}
	if r.Plans != nil || before.Plans != nil {
		return
	}
	r.Counts = before.Counts
	r.Counts.GoOn(&r.Limits)
	if same && r.countsAs(before) {
		r.Since = before.Since
	}
}

// keep reports whether all previous plans still exist.
func (p *Plans) keep(before *Plans) bool {
	for _, plan := range before.all {
		if p.Plan(plan.Plan) == nil {
			return false
		}
	}
	return true
}

// name returns the name of a plan, or "" for none.
func (r *Rule) name() string {
	if r == nil {
		return ""
	}
	return r.Plan
}

// valuesGone returns the keys that have lost an exact value.
func (n *Node) valuesGone(before *Node) map[string]bool {
	var gone map[string]bool
	for entry := range before.exact {
		if n.exact[entry] == nil {
			if gone == nil {
				gone = make(map[string]bool)
			}
			gone[entry.Key] = true
		}
	}
	return gone
}

// keep reports whether all previous patterns still exist, in the same order.
func (l *patterns) keep(before *patterns) bool {
	left := before.nodes
	for _, n := range l.nodes {
		if len(left) > 0 && n.entry.Value == left[0].entry.Value {
			left = left[1:]
		}
	}
	return len(left) == 0
}

func (l *patterns) follow(before *patterns, same bool) {
	if len(l.nodes) == 0 || len(before.nodes) == 0 {
		return
	}
	olds := make(map[string]*Node, len(before.nodes))
	for _, old := range before.nodes {
		olds[old.entry.Value] = old
	}
	for _, n := range l.nodes {
		if old := olds[n.entry.Value]; old != nil {
			n.follow(old, same)
		}
	}
}
