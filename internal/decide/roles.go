package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Modes change how limits count, in all domains.
type Modes struct {
	// Shadow lets every request pass. Answers still say what the limits decided.
	Shadow bool
	// Quota denies a request only if all its descriptors are over their limits.
	Quota bool
	// DenyUnmatched denies descriptors without a rule, in domains that do not say what
	// to do with them.
	DenyUnmatched bool
}

// giveRoles reports whether the modes give roles to the hits of rules that have none.
func (m Modes) giveRoles() bool { return m.Shadow || m.Quota }

// replace removes from the outcomes the limits that others replace, all at once: two
// limits that name each other are both replaced.
func (c *Call) replace() {
	var names []string
	for i := range c.Outcomes {
		if o := &c.Outcomes[i]; o.IsRuled() && o.Refusal == NotRefused && !c.Descriptors[i].IsDoubtful {
			for _, replaced := range o.Rule.Replaces {
				names = append(names, replaced...)
			}
		}
	}
	// Callers choose how many descriptors match a rule. Sorted names keep the cost from
	// growing with the square of that.
	slices.Sort(names)
	names = slices.Compact(names)
	isReplaced := func(l *bucket.Limit) bool {
		_, found := slices.BinarySearch(names, l.Name)
		return found // none is empty
	}
	for i := range c.Outcomes {
		// A limit that a descriptor brings is not replaced.
		if o := &c.Outcomes[i]; o.Own == nil && o.Refusal == NotRefused && slices.ContainsFunc(o.Limits, isReplaced) {
			o.Limits = slices.DeleteFunc(slices.Clone(o.Limits), isReplaced)
		}
	}
}

// giveRoles gives the outcomes their roles.
func (c *Call) giveRoles(m Modes) {
	quotas, passing := 0, false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		o.Shadow = o.IsRuled() && o.Rule.ShadowMode && o.Refusal == NotRefused
		switch {
		case o.isShadow(m):
			o.Role = bucket.Aside
		case len(o.Limits) == 0:
			// A descriptor without a limit passes and satisfies the quotas; an
			// unlimited one says nothing about them.
			passing = passing || m.Quota && !o.IsUnlimited() && !c.Descriptors[i].IsDoubtful
		case o.isQuota(m) && !c.Descriptors[i].IsDoubtful:
			quotas++
			o.Role = bucket.Quota(quotas)
		}
	}
	for i := range c.Outcomes {
		if o := &c.Outcomes[i]; o.Role > bucket.Enforced {
			if passing {
				o.Role = bucket.Aside
			} else if quotas == 1 {
				o.Role = bucket.Enforced // as the only quota is
			}
		}
	}
	c.hasQuotas = quotas > 1 && !passing
}

// settleQuotas gives quotas that share keys with other hits roles that mean the same to
// the store, which merges equal keys. A key is shared when a descriptor brings its own
// numbers for a limit that a rule has too.
func (c *Call) settleQuotas() {
	bucket.SettleQuotas(c.Hits)
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			if o.Enforces(j) {
				o.Role = o.Hits[j].Role
				break
			}
		}
	}
}
