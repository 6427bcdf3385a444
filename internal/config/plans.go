package config

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// maxPlanName bounds the names of plans in bytes.
const maxPlanName = 64

// Plans are what a rule has in place of limits of its own: who has which is said at
// run time.
type Plans struct {
	// Default is the plan of whoever has none assigned, or nil.
	Default *Rule

	all []*Rule // in file order
}

// All returns the plans in file order. Each is a rule of the same descriptor, and
// has its Plan for a name.
func (p *Plans) All() []*Rule { return p.all }

// Plan returns the plan of that name, or nil.
func (p *Plans) Plan(name string) *Rule {
	for _, r := range p.all {
		if r.Plan == name {
			return r
		}
	}
	return nil
}

// Names returns the names of the plans in file order.
func (p *Plans) Names() []string {
	names := make([]string, len(p.all))
	for i, r := range p.all {
		names[i] = r.Plan
	}
	return names
}

// maxPlans bounds the plans of a rule, since they are looked for one after the
// other.
const maxPlans = 100

// plans reads the plans of a rule and which of them is the default.
func (p *fileParser) plans(o *yamlfile.Object, r *Rule, mode bucket.FailureMode) {
	v, _ := o.Field("plans")
	target := p.Follow(v)
	if p.Spent() {
		return
	}
	const allowed = "plans by name, such as free: {requests: 100, period: 1m}"
	if target.Kind != yaml.MappingNode {
		p.Bad(v, yamlfile.DescribeNode(target), allowed)
		return
	}
	r.Plans = new(Plans)
	for i := 0; i+1 < len(target.Content); i += 2 {
		key := v.At(target.Content[i])
		if p.Follow(key).Tag == "!!merge" {
			p.Bad(key, "a merge of mappings", allowed)
			continue
		}
		name, ok := p.name(key, "the name of a plan", maxPlanName)
		if !ok {
			continue
		}
		if r.Plans.Plan(name) != nil {
			p.Bad(v.Child(name, key.Node), "the plan "+yamlfile.Quote(name)+" again", "each plan once")
			continue
		}
		plan := *r
		plan.Plans, plan.Plan, plan.Counts = nil, name, &RuleCounts{room: p.loader.rules.room}
		plan.Line = p.lineOfPlan(key, r.Line)
		p.plan(v.Child(name, target.Content[i+1]), &plan, mode)
		r.Plans.all = append(r.Plans.all, &plan)
	}
	switch n := len(r.Plans.all); {
	case len(target.Content) == 0:
		p.Bad(v, "no plan", "at least one of the "+allowed)
	case n > maxPlans:
		p.Bad(v, fmt.Sprintf("%d plans", n), fmt.Sprintf("at most %d", maxPlans))
	}
	p.defaultPlan(o, r.Plans)
}

// plan reads the limits of a plan: one, or a list of them.
func (p *fileParser) plan(v yamlfile.Value, plan *Rule, mode bucket.FailureMode) {
	if p.Follow(v).Kind == yaml.SequenceNode {
		p.rateLimits(v, plan, mode)
	} else if o, ok := p.Object(v, limitLevel); ok {
		p.oneLimit(o, plan, mode)
	}
	p.loader.share(plan)
}

// lineOfPlan returns the line of a plan's name, or that of its rule where a program
// made the rule.
func (p *fileParser) lineOfPlan(key yamlfile.Value, line int) int {
	if p.Made {
		return line
	}
	return key.Node.Line
}

// defaultPlan reads the plan of whoever has none assigned.
func (p *fileParser) defaultPlan(o *yamlfile.Object, plans *Plans) {
	v, ok := o.Field("plan")
	if !ok {
		return
	}
	name, ok := p.name(v, "the name of a plan", maxPlanName)
	if !ok {
		return
	}
	if plans.Default = plans.Plan(name); plans.Default == nil && len(plans.all) > 0 {
		p.BadName(v, name, plans.Names())
	}
}

// each calls f with the rules in force at a node with this rule: the rule itself,
// or its plans.
func (r *Rule) each(f func(*Rule)) {
	if r.Plans == nil {
		f(r)
		return
	}
	for _, plan := range r.Plans.all {
		f(plan)
	}
}

// planNote says which plan a rule is, and who has it.
func (r *Rule) planNote() string {
	if r.Plan == "" {
		return ""
	}
	return " (plan " + yamlfile.Printable(r.Plan) + ")"
}

// isDefaultPlan reports whether the rule is the plan of whoever has none assigned.
func (r *Rule) isDefaultPlan() bool {
	return r.Plan != "" && r.node.rule.Plans.Default == r
}

// HasPlan reports whether the rule that entries match has a plan of that name, or a
// rule below it. If none has, it returns the names of the plans that there are.
func (d *Domain) HasPlan(entries []bucket.Entry, plan string) (has bool, names []string) {
	n := d.root
	for i := range entries {
		if n = n.next(&entries[i]); n == nil {
			return false, nil
		}
	}
	known := make(map[string]bool)
	if n.hasPlan(plan, known) {
		return true, nil
	}
	return false, slices.Sorted(maps.Keys(known))
}

func (n *node) hasPlan(plan string, known map[string]bool) bool {
	if n.rule != nil && n.rule.Plans != nil {
		if n.rule.Plans.Plan(plan) != nil {
			return true
		}
		for _, name := range n.rule.Plans.Names() {
			known[name] = true
		}
	}
	for below := range n.below {
		if below.hasPlan(plan, known) {
			return true
		}
	}
	return false
}

// Places returns the rules in file order, each with its plans.
func (d *Domain) Places() []*Rule {
	all := make([]*Rule, 0, len(d.rules))
	for _, r := range d.rules {
		place := r
		if r.Plan != "" {
			place = r.node.rule
		}
		if len(all) == 0 || all[len(all)-1] != place {
			all = append(all, place)
		}
	}
	return all
}
