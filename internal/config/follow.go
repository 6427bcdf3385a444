package config

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// follow makes the rules go on where those before them leave off: a rule of the
// same path has the same counts, and the same Since if its limits are the same
// too. Everything else is new since now. before may be nil. follow is called
// before the rules are in force.
func (r *Rules) follow(before *Rules, now int64) {
	if before == nil {
		return
	}
	for name, d := range r.domains {
		yield()
		d.Since = now
		for _, rule := range d.rules {
			rule.Since = now
		}
		if old := before.domains[name]; old != nil {
			d.WithoutRule = old.WithoutRule
			same := d.HashTag == old.HashTag // else all keys are elsewhere
			if same && d.Algorithm == old.Algorithm && d.Unmatched == old.Unmatched {
				d.Since = old.Since
			}
			d.root.follow(old.root, same)
		}
	}
	r.shareRoom(before)
}

// follow does so for the rules at a node and below. same is false if other rules
// were in force for some of its descriptors before.
func (n *node) follow(before *node, same bool) {
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
		old := before.key(k.key)
		if old == nil {
			continue
		}
		// The descriptors that matched a value or pattern that is gone now match
		// what comes after it.
		same := same && !gone[k.key] && k.patterns.keep(&old.patterns)
		if k.bare != nil && old.bare != nil {
			k.bare.follow(old.bare, same)
		}
		k.patterns.follow(&old.patterns, same)
	}
}

// follow does so for a rule. Its plans follow those of the same names.
func (r *Rule) follow(before *Rule, same bool) {
	if r.Plans != nil && before.Plans != nil {
		// Another default is in force for all who have no plan, or one that is gone.
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
	r.Counts.goOnFor(r)
	if same && r.countsAs(before) {
		r.Since = before.Since
	}
}

// keep reports whether all plans before are still there.
func (p *Plans) keep(before *Plans) bool {
	for _, plan := range before.all {
		if p.Plan(plan.Plan) == nil {
			return false
		}
	}
	return true
}

// name returns the name of a plan, or nothing of none.
func (r *Rule) name() string {
	if r == nil {
		return ""
	}
	return r.Plan
}

// valuesGone returns the keys that have lost an exact value.
func (n *node) valuesGone(before *node) map[string]bool {
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

// keep reports whether all patterns before are still there, in the same order.
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
	olds := make(map[string]*node, len(before.nodes))
	for _, old := range before.nodes {
		olds[old.entry.Value] = old
	}
	for _, n := range l.nodes {
		if old := olds[n.entry.Value]; old != nil {
			n.follow(old, same)
		}
	}
}

// countsAs reports whether both rules keep the same states under the same keys.
func (r *Rule) countsAs(other *Rule) bool {
	return r.ShareThreshold == other.ShareThreshold &&
		slices.EqualFunc(r.Limits, other.Limits, (*bucket.Limit).CountsAs)
}
