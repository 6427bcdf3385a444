package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Domain is a namespace of limits.
type Domain struct {
	Name string
	// HashTag is the key of the entry whose value determines where the keys of a
	// descriptor go in a sharded store; it may be empty.
	HashTag string
	// Unmatched is what descriptors without a rule get.
	Unmatched Unmatched
	// WithoutRule counts the descriptors without a rule. A later load keeps the
	// counts of a domain that is still there.
	WithoutRule *tally.Counts
	// Algorithm is the file's default for limits that name none; 0 if it does not say.
	Algorithm bucket.Algorithm
	// Since is when HashTag, Unmatched or Algorithm last changed, as in Rule.Since.
	Since int64
	// File and Line are where the domain is named. A domain that did not come from a file
	// has the line 0.
	File string
	Line int

	root  *Node
	rules []*Rule
	// files are the files after the first that contain a part of the domain.
	files []string
	reach reach
	// maxLimits is how many limits a rule has at most.
	maxLimits   int
	hasNetworks bool
}

// Unmatched says what a descriptor of a known domain gets if it has no rule.
type Unmatched uint8

const (
	// UnmatchedDefault is the daemon's setting, limits.unmatched.
	UnmatchedDefault Unmatched = iota
	// AllowUnmatched lets it pass.
	AllowUnmatched
	// DenyUnmatched denies it, so that a misspelt key fails closed.
	DenyUnmatched
)

// String returns the one spelling, as in a limits file.
func (u Unmatched) String() string { return [...]string{"default", "allow", "deny"}[u] }

// NewDomain returns a domain without rules.
func NewDomain(file string) *Domain {
	return &Domain{File: file, root: new(Node), WithoutRule: new(tally.Counts)}
}

// Root returns the node above the outermost descriptors.
func (d *Domain) Root() *Node { return d.root }

// Rules returns the domain's rules that say something about limits, in file order.
func (d *Domain) Rules() []*Rule { return d.rules }

// MaxLimits is how many limits a descriptor has at most.
func (d *Domain) MaxLimits() int { return d.maxLimits }

// RulesWithPlans returns the rules in file order, each with its plans.
func (d *Domain) RulesWithPlans() []*Rule {
	all := make([]*Rule, 0, len(d.rules))
	for _, r := range d.rules {
		head := r
		if r.Plan != "" {
			head = r.of
		}
		if len(all) == 0 || all[len(all)-1] != head {
			all = append(all, head)
		}
	}
	return all
}

// Match returns the rule for a descriptor with these entries, or nil if there is none and
// so no limit.
//
// At each level an exact (key, value) wins over the longest prefix of that key that an
// address is in, that over the first matching pattern in file order, and that over the bare
// key. The choice made at a level is final, and
// the rule must be at the descriptor's own depth.
func (d *Domain) Match(entries []bucket.Entry) *Rule {
	n := d.root
	for i := range entries {
		if n = n.Next(&entries[i]); n == nil {
			return nil
		}
	}
	return n.rule
}

// WithHolders returns the rules right below descriptors with these entries whose last
// entries name holders: what is assigned to the entries goes for them too.
func (d *Domain) WithHolders(entries []bucket.Entry) (found []*Rule) {
	n := d.root
	for i := range entries {
		if n = n.Next(&entries[i]); n == nil {
			return nil
		}
	}
	for below := range n.Below {
		if below.rule != nil && below.rule.HasHolders {
			found = append(found, below.rule)
		}
	}
	slices.SortFunc(found, func(a, b *Rule) int { return strings.Compare(a.Path(), b.Path()) })
	return found
}

// Place returns the value of the first entry with the domain's hash_tag, if the domain
// has one and the entries contain it.
func (d *Domain) Place(entries []bucket.Entry) (value string, ok bool) {
	if d.HashTag == "" {
		return "", false
	}
	for i := range entries {
		if entries[i].Key == d.HashTag {
			return entries[i].Value, true
		}
	}
	return "", false
}

// PositionOf returns where a descriptor begins.
func (d *Domain) PositionOf(n *Node) (file string, line int) {
	top := &n.position
	for top.up != nil && top.up.up != nil {
		top = top.up
	}
	file = d.File
	if top.file > 0 {
		file = d.files[top.file-1]
	}
	if d.Line > 0 {
		line = int(n.line)
	}
	return file, line
}

// HasPlan reports whether the rule that entries match, or a rule below it that a request
// can reach, has a plan of that name. If not, it returns the names of the existing plans.
func (d *Domain) HasPlan(entries []bucket.Entry, plan string) (has bool, names []string) {
	n := d.root
	for i := range entries {
		if n = n.Next(&entries[i]); n == nil {
			return false, nil
		}
	}
	d.findReach()
	known := make(map[string]bool)
	if d.hasPlan(n, plan, known) {
		return true, nil
	}
	return false, slices.Sorted(maps.Keys(known))
}

func (d *Domain) hasPlan(n *Node, plan string, known map[string]bool) bool {
	if n.rule != nil && n.rule.Plans != nil {
		if n.rule.Plans.Plan(plan) != nil {
			return true
		}
		for _, name := range n.rule.Plans.Names() {
			known[name] = true
		}
	}
	for below := range n.Below {
		if !d.reach.hidden[below] && d.hasPlan(below, plan, known) {
			return true
		}
	}
	return false
}

// AddRule gives a descriptor its rule, with its plans.
func (d *Domain) AddRule(n *Node, r *Rule) {
	n.setRule(r)
	r.Each(func(each *Rule) {
		each.HasHolders = slices.ContainsFunc(each.Limits, func(l *bucket.Limit) bool { return l.Algorithm.HasHolders() })
		r.HasHolders = r.HasHolders || each.HasHolders
		d.rules = append(d.rules, each)
	})
}

// Merge adds another part of the domain, from a file, to the earlier ones. Patterns are
// tried in the order of the parts. again is called for each outermost descriptor with the
// same entry as an earlier one, first. The other part must not be used afterwards.
func (d *Domain) Merge(part *Domain, again func(n, first *Node)) {
	d.files = append(d.files, part.File)
	for n := range part.root.Below {
		n.file = int32(len(d.files))
	}
	part.root.moveBelow(d.root, again)
	d.hasNetworks = d.hasNetworks || part.hasNetworks
	d.rules = append(d.rules, part.rules...)
}
