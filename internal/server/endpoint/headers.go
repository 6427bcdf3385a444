package endpoint

import (
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// Header is a response header. Its value is the text, or the number if the text is
// empty.
type Header struct {
	Name, text string
	number     int64
}

// AppendValue appends the value.
func (h *Header) AppendValue(dst []byte) []byte {
	if h.text != "" {
		return append(dst, h.text...)
	}
	return strconv.AppendInt(dst, h.number, 10)
}

// FewHeaders is enough for most responses.
const FewHeaders = 4

// AppendHeaders appends the headers of the response to a decided call: those of the
// style, and retry-after.
func AppendHeaders(c *decide.Call, dst []Header, s *settings.Headers) []Header {
	switch s.Style {
	case "ratelimit":
		dst = appendRateLimit(c, dst, s)
	case "x-ratelimit":
		dst = appendXRateLimit(c, dst)
	case "ietf":
		dst = appendPolicies(c, dst)
	}
	if c.Denied {
		// A request that can never succeed has no retry-after.
		if retry := c.RetryAfter(); retry > 0 {
			dst = append(dst, Header{Name: RetryAfter, number: Seconds(retry)})
		}
	}
	return dst
}

// RetryAfter is the header that says when to retry.
const RetryAfter = "retry-after"

// appendRateLimit appends the headers of envoyproxy/ratelimit. They repeat one of the
// statuses: the last one that is over its limit and is not a quota, else the first of
// those with the fewest remaining.
func appendRateLimit(c *decide.Call, dst []Header, s *settings.Headers) []Header {
	var limit *bucket.Limit
	var decision bucket.Decision
	over := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		l, d := o.Decisive()
		if l == nil {
			continue
		}
		if !d.Allowed() && !o.Shadow && !c.IsQuota(o) {
			limit, decision, over = l, d, true
		} else if limit == nil || !over && d.Remaining < decision.Remaining {
			limit, decision = l, d
		}
	}
	if limit == nil {
		return dst
	}
	return append(dst,
		Header{Name: s.Limit, number: limit.Requests},
		Header{Name: s.Remaining, number: decision.Remaining},
		Header{Name: s.Reset, number: Seconds(decision.ResetAfter)})
}

// appendXRateLimit appends the headers of the limit that speaks for the whole request.
// Callers do not see shadow limits.
func appendXRateLimit(c *decide.Call, dst []Header) []Header {
	var limit *bucket.Limit
	var decision bucket.Decision
	for i := range c.Outcomes {
		if c.IsShadow(&c.Outcomes[i]) {
			continue
		}
		l, d := c.Outcomes[i].Decisive()
		if l != nil && (limit == nil || decide.SpeaksBefore(&d, &decision)) {
			limit, decision = l, d
		}
	}
	if limit == nil {
		return dst
	}
	return append(dst,
		Header{Name: "X-RateLimit-Limit", number: limit.Capacity},
		Header{Name: "X-RateLimit-Remaining", number: decision.Remaining},
		Header{Name: "X-RateLimit-Reset", number: Seconds(decision.ResetAfter)})
}

// appendPolicies appends RateLimit-Policy and RateLimit, with a policy for each
// limit that is not a shadow limit.
func appendPolicies(c *decide.Call, dst []Header) []Header {
	list := policies(c)
	if list.IsEmpty() {
		return dst
	}
	return append(dst,
		Header{Name: headers.PolicyField, text: string(list.AppendPolicies(nil))},
		Header{Name: headers.LimitField, text: string(list.AppendLimits(nil))})
}

func policies(c *decide.Call) *headers.List {
	var list headers.List
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		if c.IsShadow(o) {
			continue
		}
		for j, l := range o.Limits {
			if !o.Enforces(j) {
				continue
			}
			d := &o.Decisions[j]
			reset := d.ResetAfter
			if d.RetryAfter > 0 && d.RetryAfter != bucket.Never {
				reset = d.RetryAfter // so that it ends when retry-after does
			}
			list.Add(headers.Policy{
				Name:  policyName(o, l, c.Descriptors[i].Entries),
				Quota: l.Capacity, Window: window(l, d),
				Remaining: d.Remaining, Reset: Seconds(reset), IsConcurrent: l.Algorithm.HasHolders(),
			})
		}
	}
	return &list
}

// window returns the time in which an empty limit becomes full, in seconds, or 0 if
// that is not a whole number, which the header cannot have. d is a decision of the limit.
func window(l *bucket.Limit, d *bucket.Decision) int64 {
	const second = 1_000_000
	micros := l.PeriodAt(d).Microseconds()
	if l.Algorithm.IsBucket() && l.Requests > 0 {
		full := l.Capacity * l.Unit // exact: NewLimit ensures it
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

// policyName returns the limit's name, or the keys of the rule. A descriptor's own
// limit has the keys of its rule; without a rule it is called override, since
// callers choose its keys.
func policyName(o *decide.Outcome, l *bucket.Limit, entries []bucket.Entry) string {
	switch {
	case o.Rule == nil:
		return "override"
	case o.Own == nil && l.Name != "":
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

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
