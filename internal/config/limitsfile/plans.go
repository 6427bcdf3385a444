package limitsfile

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// maxPlanName bounds the names of plans in bytes.
const maxPlanName = 64

// maxPlans bounds the plans of a rule, since lookup is linear.
const maxPlans = 100

// plans reads the plans of a rule and which of them is the default.
func (p *reader) plans(o *yamlfile.Object, r *rules.Rule, mode bucket.FailureMode) {
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
	r.Plans = new(rules.Plans)
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
		plan.Plans, plan.Plan, plan.Counts = nil, name, tally.NewRuleCounts(p.shared.room)
		plan.Line = p.lineOfPlan(key, r.Line)
		p.plan(v.Child(name, target.Content[i+1]), &plan, mode)
		r.AddPlan(&plan)
	}
	switch n := len(r.Plans.All()); {
	case len(target.Content) == 0:
		p.Bad(v, "no plan", "at least one of the "+allowed)
	case n > maxPlans:
		p.Bad(v, fmt.Sprintf("%d plans", n), fmt.Sprintf("at most %d", maxPlans))
	}
	p.defaultPlan(o, r.Plans)
}

// plan reads the limits of a plan: one, or a list of them.
func (p *reader) plan(v yamlfile.Value, plan *rules.Rule, mode bucket.FailureMode) {
	if p.Follow(v).Kind == yaml.SequenceNode {
		p.rateLimits(v, plan, mode)
	} else if o, ok := p.Object(v, limitLevel); ok {
		p.oneLimit(o, plan, mode)
	}
	p.shared.copies.Share(plan)
}

// lineOfPlan returns the line of a plan's name, or that of its rule if a program made the
// rule.
func (p *reader) lineOfPlan(key yamlfile.Value, line int) int {
	if p.Made {
		return line
	}
	return key.Node.Line
}

// defaultPlan reads the plan that applies where none is assigned.
func (p *reader) defaultPlan(o *yamlfile.Object, plans *rules.Plans) {
	v, ok := o.Field("plan")
	if !ok {
		return
	}
	name, ok := p.name(v, "the name of a plan", maxPlanName)
	if !ok {
		return
	}
	if plans.Default = plans.Plan(name); plans.Default == nil && len(plans.All()) > 0 {
		p.BadName(v, name, plans.Names())
	}
}
