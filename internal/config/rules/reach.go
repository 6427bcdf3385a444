package rules

import "sync"

// reach is what is known of a domain beyond what a file says of each descriptor. It is
// computed on first use by looking at all of them.
type reach struct {
	find sync.Once
	// hidden holds descriptors that no request reaches, since earlier patterns match
	// everything that they do. What is below them is not looked at.
	hidden map[*Node]bool
	// barren holds those with others below them that have no rule themselves, and none
	// below that a request reaches. Most domains have few.
	barren map[*Node]bool
}

// findReach looks at the domain, unless that has been done.
func (d *Domain) findReach() {
	d.reach.find.Do(func() {
		d.reach.hidden, d.reach.barren = make(map[*Node]bool), make(map[*Node]bool)
		d.reach.add(d.root)
	})
}

// LeadsToRule reports whether a descriptor of the domain has a rule, or one below it that
// a request can reach. The first call looks at the whole domain; later ones look at one
// descriptor.
func (d *Domain) LeadsToRule(n *Node) bool {
	d.findReach()
	return n.rule != nil || n.HasBelow() && !d.reach.barren[n]
}

// add adds n and what is below it. It reports whether n leads to a rule.
func (r *reach) add(n *Node) (leads bool) {
	for i := range n.keys {
		r.addHidden(&n.keys[i])
	}
	leads = n.rule != nil
	for child := range n.Below {
		if !r.hidden[child] {
			leads = r.add(child) || leads
		}
	}
	if !leads && n.HasBelow() {
		r.barren[n] = true
	}
	return leads
}

// addHidden adds the hidden descriptors of a key.
func (r *reach) addHidden(k *Key) {
	all := k.Globs().FirstThatCoversAll()
	if all >= 0 && k.bare != nil {
		r.hidden[k.bare] = true
	}
	for i, n := range k.patterns.nodes {
		if all >= 0 && i > all || k.Globs().IsNeverFirst(i) {
			r.hidden[n] = true
		}
	}
}
