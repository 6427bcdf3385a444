package server

import (
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// headersOf returns what appends the headers of a style, or nil for none.
func headersOf(s config.HeadersSettings) func(dst []byte, c *call) []byte {
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

// appendPolicies appends RateLimit-Policy and RateLimit as in
// draft-ietf-httpapi-ratelimit-headers-11, with a policy for each limit but for
// shadow limits.
func (c *call) appendPolicies(dst []byte) []byte {
	names := c.policyNames()
	if len(names) == 0 {
		return dst
	}
	dst = c.appendPolicyList(dst, "RateLimit-Policy", names, appendPolicy)
	return c.appendPolicyList(dst, "RateLimit", names, appendServiceLimit)
}

// appendPolicyList appends a header with an item for each limit, a name and its
// parameters (RFC 9651, section 3.1).
func (c *call) appendPolicyList(dst []byte, header string, names []string,
	parameters func(dst []byte, l *bucket.Limit, d *bucket.Decision) []byte) []byte {
	dst, start, text := beginHeader(dst, header)
	n := 0
	for i := range c.outcomes {
		o := &c.outcomes[i]
		if o.isShadow(c.decider.modes) {
			continue
		}
		for j, l := range o.limits {
			if n > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(append(append(dst, '"'), names[n]...), '"')
			dst = parameters(dst, l, &o.decisions[j])
			n++
		}
	}
	return endHeader(dst, start, text)
}

// appendPolicy appends the quota q and its window w in seconds: what can be
// taken at once, and how long it takes to be there again. A window that is not
// whole seconds cannot be said and is left out.
func appendPolicy(dst []byte, l *bucket.Limit, _ *bucket.Decision) []byte {
	dst = appendParameter(dst, ";q=", l.Capacity)
	if w := window(l); w > 0 {
		dst = appendParameter(dst, ";w=", w)
	}
	return dst
}

// appendServiceLimit appends what remains, r, and for how long that is all, t in
// seconds: until the limit is full, or, where it denied, until it has room, so
// that it ends when retry-after says to come back.
func appendServiceLimit(dst []byte, _ *bucket.Limit, d *bucket.Decision) []byte {
	t := d.ResetAfter
	if d.RetryAfter > 0 && d.RetryAfter != bucket.Never {
		t = d.RetryAfter
	}
	return appendParameter(appendParameter(dst, ";r=", d.Remaining), ";t=", seconds(t))
}

func appendParameter(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), value, 10)
}

// window is the time in seconds in which an empty limit becomes full, or 0 if it
// is not whole seconds.
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

// policyNames returns a name for each limit of the outcomes, in their order, as
// the inside of a structured field's string. No two are the same, and all are
// from configuration.
func (c *call) policyNames() []string {
	var names []string
	used := make(map[string]int) // how often each was wanted
	for i := range c.outcomes {
		o := &c.outcomes[i]
		if o.isShadow(c.decider.modes) {
			continue
		}
		for _, l := range o.limits {
			name := o.policyName(l, c.descriptors[i].entries)
			n := used[name]
			unique := name
			for n > 0 && used[unique] > 0 {
				n++
				unique = name + "-" + strconv.Itoa(n)
			}
			used[name] = max(1, n)
			used[unique] = max(1, used[unique])
			names = append(names, unique)
		}
	}
	return names
}

// policyName returns the limit's name, or the rule's keys, which those of the
// descriptor are equal to. A descriptor's own limit has no name of its own, and
// without a rule its keys are any.
func (o *outcome) policyName(l *bucket.Limit, entries []bucket.Entry) string {
	switch {
	case o.rule == nil:
		return "override"
	case o.own == nil && l.Name != "":
		return fieldString(l.Name)
	case len(entries) == 1:
		return fieldString(entries[0].Key)
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return fieldString(strings.Join(keys, "/"))
}

// fieldString returns a text as the inside of a structured field's string (RFC
// 9651, section 3.3.3), which holds printable ASCII; other characters become
// question marks.
func fieldString(text string) string {
	plain := true
	for i := 0; i < len(text); i++ {
		plain = plain && ' ' <= text[i] && text[i] <= '~' && text[i] != '"' && text[i] != '\\'
	}
	if plain {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < ' ' || r > '~':
			b.WriteByte('?')
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
