package rules

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// MaxUnenforced is how many limits of a rule, the first ones, may have shadow_mode or
// enforce: 64 bits say which of them are in force for a descriptor.
const MaxUnenforced = 64

// Rule is a place in a limits file that descriptors match, with the limits that then
// apply.
type Rule struct {
	// Plans holds the limits of a rule that has them by plan, or is nil. With plans the
	// rule has no limits of its own and is not unlimited.
	Plans *Plans
	// Plan is the name of the plan that the rule is, or empty.
	Plan string
	// Limits must all allow. There are none if Unlimited.
	Limits []*bucket.Limit
	// Name is the name of an unlimited rule; limits have their own.
	Name string
	// Replaces holds, for each limit of Limits in order, or for the unlimited
	// rule, the names of the limits that it replaces in a request that matches
	// both. It is nil if none replaces any.
	Replaces [][]string
	// Unlimited rules always allow.
	Unlimited bool
	// HasHolders is set if the limits of the rule, or of its plans, count requests in
	// flight: the value of a descriptor's last entry names the holder, and is not a part
	// of its subject. AddRule sets it.
	HasHolders bool
	// ShadowMode limits never deny.
	ShadowMode bool
	// QuotaMode limits report that they are exhausted; a request is over its limit once
	// all its quotas are. Never with ShadowMode.
	QuotaMode bool
	// DetailedMetric asks for counts by the values of all entries.
	DetailedMetric bool
	// Shared has, for each entry of the rule's descriptors, the pattern whose values share
	// one counter, or "" if each value has its own. It is nil if no values share. New sets
	// it.
	Shared []string
	// CountedEntries are the indexes of the entries by whose values the rule counts, in
	// order, unless DetailedMetric is set. New sets them.
	CountedEntries []int
	// Metadata is sent with the answer to descriptors that the rule lets pass, or is nil.
	// Values are nil, bool, int64, float64, string, []any and map[string]any; they must
	// not be changed.
	Metadata map[string]any
	// File and Line are where the descriptor of the rule begins.
	File string
	Line int
	// Counts holds the results of descriptors that matched the rule.
	Counts *tally.RuleCounts
	// Since is when the limits of the rule, or the rule in force for some of its
	// descriptors, last changed in a Live, in microseconds since the Unix epoch on its
	// clock; 0 if that was before its first load.
	Since int64

	position *position
	// of is the rule whose plan it is, or nil.
	of *Rule
}

// Path returns the entries that lead to the rule, as in the file, in a form for people:
// "user=alice / plan", or "user (plan free)" for a plan. No two rules of a domain have
// the same path.
func (r *Rule) Path() string {
	return r.Counts.Path(func() string { return string(r.AppendPath(nil)) })
}

// AppendPath appends it to dst.
func (r *Rule) AppendPath(dst []byte) []byte {
	var room [8]bucket.Entry
	dst = appendPathText(dst, r.position.appendEntries(room[:0]))
	return append(dst, r.PlanNote()...)
}

// IsAt reports whether a path is that of the rule, or of the rule whose plan it is.
func (r *Rule) IsAt(path string) bool {
	at := PathText(r.Entries())
	return at+r.PlanNote() == path || at == path
}

// Entries returns the entries that lead to the rule, as in the file: a value may be a
// pattern, or empty for any.
func (r *Rule) Entries() []bucket.Entry { return r.AppendEntries(nil) }

// AppendEntries appends them to dst.
func (r *Rule) AppendEntries(dst []bucket.Entry) []bucket.Entry { return r.position.appendEntries(dst) }

// Plans are what a rule has instead of its own limits: who has which plan is assigned at
// run time.
type Plans struct {
	// Default is the plan that applies where none is assigned, or nil.
	Default *Rule

	all []*Rule // in file order
}

// All returns the plans in file order. Each is a rule of the same descriptor, named by
// its Plan.
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

// AddPlan adds a plan to a rule with Plans.
func (r *Rule) AddPlan(plan *Rule) {
	plan.of = r
	r.Plans.all = append(r.Plans.all, plan)
}

// Each calls f with the rules in force at a descriptor with this rule: the rule itself,
// or its plans.
func (r *Rule) Each(f func(*Rule)) {
	if r.Plans == nil {
		f(r)
		return
	}
	for _, plan := range r.Plans.all {
		f(plan)
	}
}

// PlanNote says which plan a rule is, and who has it.
func (r *Rule) PlanNote() string {
	if r.Plan == "" {
		return ""
	}
	return " (plan " + yamlfile.Printable(r.Plan) + ")"
}

// IsDefaultPlan reports whether the rule is the plan that applies where none is assigned.
func (r *Rule) IsDefaultPlan() bool {
	return r.of != nil && r.of.Plans.Default == r
}

// countsAs reports whether both rules keep the same states under the same keys.
func (r *Rule) countsAs(other *Rule) bool {
	return slices.Equal(r.Shared, other.Shared) &&
		slices.EqualFunc(r.Limits, other.Limits, (*bucket.Limit).CountsAs)
}
