package server

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/policylist"
)

// headersOf returns what appends the headers of a style, or nil for none.
func headersOf(s settings.Headers) func(dst []byte, c *call) []byte {
	switch s.Style {
	case "ratelimit":
		return func(dst []byte, c *call) []byte { return c.appendRateLimit(dst, s.Limit, s.Remaining, s.Reset) }
	case "x-ratelimit":
		return func(dst []byte, c *call) []byte { return c.appendXRateLimit(dst) }
	case "ietf":
		return func(dst []byte, c *call) []byte { return c.appendPolicies(dst) }
	}
	return nil
}

// appendRateLimit appends the headers of envoyproxy/ratelimit, which say what
// one of the statuses says: the last that is over its limit and no quota, else
// the one with the fewest remaining, of those the first.
func (c *call) appendRateLimit(dst []byte, limitName, remainingName, resetName string) []byte {
	var limit *bucket.Limit
	var decision bucket.Decision
	over := false
	for i := range c.outcomes {
		o := &c.outcomes[i]
		l, d := o.decisive()
		if l == nil {
			continue
		}
		if !d.Allowed() && !o.shadow && !o.isQuota(c.decider.modes) {
			limit, decision, over = l, d, true
		} else if limit == nil || !over && d.Remaining < decision.Remaining {
			limit, decision = l, d
		}
	}
	if limit == nil {
		return dst
	}
	dst = appendHeader(dst, limitName, limit.Requests)
	dst = appendHeader(dst, remainingName, decision.Remaining)
	return appendHeader(dst, resetName, seconds(decision.ResetAfter))
}

// appendXRateLimit appends the headers of the limit that speaks for the whole
// request. Shadow limits do not: those who are limited see nothing of them.
func (c *call) appendXRateLimit(dst []byte) []byte {
	var limit *bucket.Limit
	var decision bucket.Decision
	for i := range c.outcomes {
		if c.outcomes[i].isShadow(c.decider.modes) {
			continue
		}
		l, d := c.outcomes[i].decisive()
		if l != nil && (limit == nil || speaksBefore(&d, &decision)) {
			limit, decision = l, d
		}
	}
	if limit == nil {
		return dst
	}
	dst = appendHeader(dst, "X-RateLimit-Limit", limit.Capacity)
	dst = appendHeader(dst, "X-RateLimit-Remaining", decision.Remaining)
	return appendHeader(dst, "X-RateLimit-Reset", seconds(decision.ResetAfter))
}

// appendPolicies appends RateLimit-Policy and RateLimit, with a policy for each
// limit but for shadow limits.
func (c *call) appendPolicies(dst []byte) []byte {
	list := c.policies()
	if list.IsEmpty() {
		return dst
	}
	dst, header, text := beginHeader(dst, policylist.PolicyField)
	dst = endHeader(list.AppendPolicies(dst), header, text)
	dst, header, text = beginHeader(dst, policylist.LimitField)
	return endHeader(list.AppendLimits(dst), header, text)
}

func (c *call) policies() *policylist.List {
	var list policylist.List
	for i := range c.outcomes {
		o := &c.outcomes[i]
		if o.isShadow(c.decider.modes) {
			continue
		}
		for j, l := range o.limits {
			d := &o.decisions[j]
			reset := d.ResetAfter
			if d.RetryAfter > 0 && d.RetryAfter != bucket.Never {
				reset = d.RetryAfter // so that it ends when retry-after says to come back
			}
			list.Add(policylist.Policy{
				Name:  o.policyName(l, c.descriptors[i].entries),
				Quota: l.Capacity, Window: window(l),
				Remaining: d.Remaining, Reset: seconds(reset),
			})
		}
	}
	return &list
}

// window is the time in seconds in which an empty limit becomes full, or 0 if it
// is not whole seconds, which cannot be said.
func window(l *bucket.Limit) int64 {
	const second = 1_000_000
	micros := l.PeriodMicros
	if l.Algorithm.IsBucket() && l.Requests > 0 {
		full := l.Capacity * l.Unit // exact: NewLimit sees to it
		if full%l.Rate != 0 {
			return 0
		}
		micros = full / l.Rate * l.Quantum
	}
	if micros%second != 0 {
		return 0
	}
	return micros / second
}

// policyName returns the limit's name, or the rule's keys, which those of the
// descriptor are equal to. A descriptor's own limit has no name of its own, and
// without a rule its keys are any.
func (o *outcome) policyName(l *bucket.Limit, entries []bucket.Entry) string {
	switch {
	case o.rule == nil:
		return "override"
	case o.own == nil && l.Name != "":
		return l.Name
	case len(entries) == 1:
		return entries[0].Key
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return strings.Join(keys, "/")
}
