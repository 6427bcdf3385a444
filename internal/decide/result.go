package decide

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// IsShadow reports whether an outcome of the call cannot deny it.
func (c *Call) IsShadow(o *Outcome) bool { return o.isShadow(c.decider.Modes) }

// IsQuota reports whether an outcome is one of the call's quotas.
func (c *Call) IsQuota(o *Outcome) bool { return o.isQuota(c.decider.Modes) }

// ResultOf returns the result of an outcome of the decided call: tally.Allowed, Denied
// or Shadowed.
func (c *Call) ResultOf(o *Outcome) tally.Result {
	switch {
	case !o.IsOver():
		return tally.Allowed
	case c.IsShadow(o):
		return tally.Shadowed
	}
	return tally.Denied
}

// LimitResult returns what limit j of an outcome of the decided call said.
func (c *Call) LimitResult(o *Outcome, j int) tally.LimitResult {
	return c.decider.limitResult(o, j, bucket.Due(&o.Hits[j], &o.Decisions[j], !c.Denied))
}

// limitResult returns what limit j of an outcome said; charged is whether its hit was.
func (d *Decider) limitResult(o *Outcome, j int, charged bool) tally.LimitResult {
	h, decision := &o.Hits[j], &o.Decisions[j]
	switch {
	case decision.Allowed():
		switch {
		case h.Cost == 0:
			return tally.LimitPeeked
		case !charged:
			return tally.LimitDeniedByOther
		case d.Hits.isNear(h.Limit, decision):
			return tally.LimitNear
		}
		return tally.LimitAllowed
	case charged && h.Cost > 0:
		return tally.LimitOver
	case o.isShadow(d.Modes) || !o.Enforces(j):
		return tally.LimitShadowed
	}
	return tally.LimitDenied
}

// Denier returns the index of the descriptor that a denied call waits for, the index of
// its limit, and that limit's decision: the enforced one with the longest retry time,
// or the quota with the shortest, if that is longer still.
func (c *Call) Denier() (descriptor, limit int, decision bucket.Decision) {
	enforced, quota := denier{}, denier{}
	hasQuota := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		j := o.decisiveIndex()
		if j < 0 {
			continue
		}
		this := denier{descriptor: i, limit: j, Decision: o.Decisions[j]}
		switch {
		case o.Role == bucket.Enforced && !this.Allowed():
			if enforced.Allowed() || SpeaksBefore(&this.Decision, &enforced.Decision) {
				enforced = this
			}
		case o.Role > bucket.Enforced:
			if !hasQuota || bucket.IsLonger(quota.RetryAfter, this.RetryAfter) {
				quota, hasQuota = this, true
			}
		}
	}
	if bucket.IsLonger(quota.RetryAfter, enforced.RetryAfter) {
		enforced = quota
	}
	return enforced.descriptor, enforced.limit, enforced.Decision
}

// denier is a limit of a call, by its indexes, and what it decided.
type denier struct {
	descriptor, limit int
	bucket.Decision
}

// RetryAfter returns how long a denied call has to wait until it is allowed, if no other
// takes; or bucket.Never, or bucket.Unknown.
func (c *Call) RetryAfter() time.Duration {
	_, _, decision := c.Denier()
	return decision.RetryAfter
}

// IsDegraded reports whether the store did not decide all of the call, or did not settle it.
func (c *Call) IsDegraded() bool {
	return slices.ContainsFunc(c.Settled, func(s Settled) bool { return s.Degraded }) || slices.ContainsFunc(c.Outcomes, func(o Outcome) bool {
		return slices.ContainsFunc(o.Decisions, func(d bucket.Decision) bool { return d.Degraded })
	})
}

// HeldFor returns how long the holder of limit j of an outcome of the decided call has its
// slot if it is not heard of again; 0 if the call did not take or renew it.
func (c *Call) HeldFor(o *Outcome, j int) time.Duration {
	h, d := &o.Hits[j], &o.Decisions[j]
	if h.Holder == "" || h.Cost <= 0 || d.At == 0 || !bucket.Due(h, d, !c.Denied) {
		return 0
	}
	return h.Limit.Period
}

// IsReserved reports whether the decided call charged something that can be settled.
func (c *Call) IsReserved() bool {
	if c.ID == "" {
		return false
	}
	for i := range c.Hits {
		if h := &c.Hits[i]; h.IsReserved() && bucket.Charged(h, &c.decisions[i], !c.Denied) {
			return true
		}
	}
	return false
}

// IsPeek reports whether the call passed and all its hits cost 0.
func (c *Call) IsPeek() bool {
	for i := range c.Hits {
		if c.Hits[i].Cost != 0 {
			return false
		}
	}
	return !c.Denied && len(c.Hits) > 0
}

// IsSettled reports whether a settlement has found something that the ID charged.
func (c *Call) IsSettled() bool {
	return slices.ContainsFunc(c.Settled, func(s Settled) bool { return s.IsKnown })
}

// IsShared reports whether a settlement was of an ID that several takes had.
func (c *Call) IsShared() bool {
	return slices.ContainsFunc(c.Settled, func(s Settled) bool { return s.Takes > 1 })
}
