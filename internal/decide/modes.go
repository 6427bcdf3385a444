package decide

import (
	"slices"
	"time"

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

// Refusal is why a descriptor is denied whatever its rule says.
type Refusal uint8

// Refusals.
const (
	NotRefused Refusal = iota
	// Blocked: an assignment blocks it.
	Blocked
	// Unmatched: no rule matches it, or the rule lacks its plan, and its domain denies
	// such descriptors.
	Unmatched
)

// IsUnlimited reports whether a rule or an assignment says that the descriptor has
// no limit.
func (o *Outcome) IsUnlimited() bool {
	return o.Own == nil && o.Refusal == NotRefused && (o.freed || o.Rule != nil && o.Rule.Unlimited)
}

// IsFreed reports whether an assignment says that the descriptor has no limit.
func (o *Outcome) IsFreed() bool { return o.freed && o.Own == nil && o.Refusal == NotRefused }

// IsRuled reports whether a rule decides, rather than the descriptor's own limit.
func (o *Outcome) IsRuled() bool { return o.Rule != nil && o.Own == nil }

// isShadow reports whether the outcome cannot deny the call.
func (o *Outcome) isShadow(m Modes) bool { return o.Shadow || m.Shadow }

// isQuota reports whether the outcome is one of the call's quotas.
func (o *Outcome) isQuota(m Modes) bool {
	if o.Refusal != NotRefused {
		return false
	}
	return m.Quota || o.IsRuled() && o.Rule.QuotaMode
}

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
		// Nobody replaces a limit that a descriptor brings.
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
	if !c.hasQuotas || len(c.overrides) == 0 {
		return
	}
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

// RetryAfter returns how long a denied call has to wait until it is allowed, if
// nobody else takes; or bucket.Never, or bucket.Unknown.
func (c *Call) RetryAfter() time.Duration {
	_, _, d := c.Denier()
	return d.RetryAfter
}

// Denier returns the index of the descriptor that a denied call waits for, the index of
// its limit, and that limit's decision: the enforced one with the longest retry time,
// or the quota with the shortest, if that is longer still.
func (c *Call) Denier() (descriptor, limit int, d bucket.Decision) {
	type denier struct {
		descriptor, limit int
		bucket.Decision
	}
	var enforced, quota denier
	hasQuota := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		best := o.decisiveIndex()
		if best < 0 {
			continue
		}
		d := denier{i, best, o.Decisions[best]}
		switch {
		case o.Role == bucket.Enforced && !d.Allowed():
			if enforced.Allowed() || SpeaksBefore(&d.Decision, &enforced.Decision) {
				enforced = d
			}
		case o.Role > bucket.Enforced:
			if !hasQuota || bucket.IsLonger(quota.RetryAfter, d.RetryAfter) {
				quota, hasQuota = d, true
			}
		}
	}
	if bucket.IsLonger(quota.RetryAfter, enforced.RetryAfter) {
		enforced = quota
	}
	return enforced.descriptor, enforced.limit, enforced.Decision
}
