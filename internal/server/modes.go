package server

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// modes are what changes the say of limits in all domains.
type modes struct {
	// shadow lets every request pass; what the limits say is still told.
	shadow bool
	// quota denies a request once all its descriptors are over their limits.
	quota bool
}

// isRuled reports whether the rule that the descriptor matches applies: there is
// one, and no limit of the descriptor's own in its place.
func (o *outcome) isRuled() bool { return o.rule != nil && o.own == nil }

// hasMode reports whether the outcome's rule is more than enforced by itself.
func (o *outcome) hasMode() bool {
	return o.isRuled() && (o.rule.ShadowMode || o.rule.QuotaMode || o.rule.Replaces != nil)
}

// isShadow reports whether the outcome cannot deny the call.
func (o *outcome) isShadow(m modes) bool { return o.shadow || m.shadow }

// isQuota reports whether the outcome is one of the call's quotas.
func (o *outcome) isQuota(m modes) bool {
	return m.quota || o.isRuled() && o.rule.QuotaMode
}

// replace takes from the outcomes the limits that others replace. All at once:
// two that name each other both go.
func (c *call) replace() {
	var names []string
	for i := range c.outcomes {
		if o := &c.outcomes[i]; o.isRuled() && !c.descriptors[i].isDoubtful {
			for _, replaced := range o.rule.Replaces {
				names = append(names, replaced...)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	// Callers choose how many descriptors ask for a rule: without an order, what
	// names cost would grow with the square of that.
	slices.Sort(names)
	names = slices.Compact(names)
	isReplaced := func(l *bucket.Limit) bool {
		_, found := slices.BinarySearch(names, l.Name)
		return found // none is empty
	}
	for i := range c.outcomes {
		// A limit that a descriptor brings has no name there.
		if o := &c.outcomes[i]; o.own == nil && slices.ContainsFunc(o.limits, isReplaced) {
			o.limits = slices.DeleteFunc(slices.Clone(o.limits), isReplaced)
		}
	}
}

// giveRoles says what each outcome has to do with whether the call is allowed.
func (c *call) giveRoles(m modes) {
	quotas, passing := 0, false
	for i := range c.outcomes {
		o := &c.outcomes[i]
		o.shadow = o.isRuled() && o.rule.ShadowMode
		switch {
		case o.isShadow(m):
			o.role = bucket.Aside
		case len(o.limits) == 0:
			// What no limit applies to passes, unless it is unlimited: that
			// says nothing about a quota.
			passing = passing || m.quota && !(o.isRuled() && o.rule.Unlimited) && !c.descriptors[i].isDoubtful
		case o.isQuota(m) && !c.descriptors[i].isDoubtful:
			quotas++
			o.role = bucket.Quota(quotas)
		}
	}
	for i := range c.outcomes {
		if o := &c.outcomes[i]; o.role > bucket.Enforced {
			if passing {
				o.role = bucket.Aside
			} else if quotas == 1 {
				o.role = bucket.Enforced // as the only quota is
			}
		}
	}
	c.hasQuotas = quotas > 1 && !passing
}

// settleQuotas gives quotas that share keys with others the roles that say the
// same where equal keys are one hit, so that the store's merged hits and the
// call's own allow the same. A key is shared where a descriptor brings its own
// numbers for a limit that a rule has too.
func (c *call) settleQuotas() {
	if !c.hasQuotas || len(c.overrides) == 0 {
		return
	}
	merged, of := bucket.Merge(nil, nil, c.hits)
	// A quota asks what is not enforced anyway. If that is nothing, the request
	// has no need of others; if it is one key, those that ask it too add nothing.
	needless, alone := false, make([]bool, len(merged))
	asked := make([][]int, len(c.outcomes))
	rest := of
	for i := range c.outcomes {
		o := &c.outcomes[i]
		var own []int
		own, rest = rest[:len(o.limits)], rest[len(o.limits):]
		if o.role <= bucket.Enforced {
			continue
		}
		for _, j := range own {
			if merged[j].Role != bucket.Enforced {
				asked[i] = append(asked[i], j)
			}
		}
		needless = needless || len(asked[i]) == 0
		if len(asked[i]) == 1 {
			alone[asked[i][0]] = true
		}
	}
	n := 0
	for i := range c.outcomes {
		o := &c.outcomes[i]
		isAlone := func(j int) bool { return alone[j] }
		if o.role > bucket.Enforced && (needless || len(asked[i]) > 1 && slices.ContainsFunc(asked[i], isAlone)) {
			o.role = bucket.Aside
		}
		for range o.limits {
			c.hits[n].Role = o.role
			n++
		}
	}
}

// retryAfter is how long a denied call has to wait until it is allowed, if
// nobody else takes; or Never.
func (c *call) retryAfter() time.Duration {
	_, d := c.denier()
	return d.RetryAfter
}

// denier returns the hit that a denied call waits for, and its decision: of the
// enforced ones the one that does longest, or the quota that does least, if it
// does longer still.
func (c *call) denier() (hit int, d bucket.Decision) {
	var enforced, quota bucket.Decision
	enforcedHit, quotaHit, n := 0, -1, 0
	for i := range c.outcomes {
		o := &c.outcomes[i]
		best := o.decisiveIndex()
		if best >= 0 {
			d := o.decisions[best]
			switch {
			case o.role == bucket.Enforced && !d.Allowed():
				if enforced.Allowed() || speaksBefore(&d, &enforced) {
					enforcedHit, enforced = n+best, d
				}
			case o.role > bucket.Enforced:
				if quotaHit < 0 || isLonger(quota.RetryAfter, d.RetryAfter) {
					quotaHit, quota = n+best, d
				}
			}
		}
		n += len(o.decisions)
	}
	if isLonger(quota.RetryAfter, enforced.RetryAfter) {
		return quotaHit, quota
	}
	return enforcedHit, enforced
}

// isLonger compares retry times, of which Never is the longest.
func isLonger(a, b time.Duration) bool {
	return b != bucket.Never && (a == bucket.Never || a > b)
}
