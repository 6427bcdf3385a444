package guard

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard/headers"
)

// SetHeaders calls set with each header of a verdict.
func (g *Guard[R, S, H]) SetHeaders(v Verdict, set func(name, value string)) {
	if v.Result == nil || g.options.Headers == None {
		return
	}
	if g.options.Headers == IETF {
		g.setPolicies(v, set)
	} else {
		setXRateLimit(v.Result, set)
	}
	if after := v.Result.RetryAfter; !v.Allowed && after > 0 {
		set("Retry-After", strconv.FormatInt(Seconds(after), 10))
	}
}

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// setXRateLimit describes the limit that matters most to the caller. It skips shadow
// limits: callers must not notice them.
func setXRateLimit(r *client.Result, set func(name, value string)) {
	var speaker *client.Limited
	for i := range r.Limits {
		if l := &r.Limits[i]; !l.Shadow && (speaker == nil || speaksBefore(l, speaker)) {
			speaker = l
		}
	}
	if speaker == nil {
		return
	}
	set("X-RateLimit-Limit", strconv.FormatUint(speaker.Capacity, 10))
	set("X-RateLimit-Remaining", strconv.FormatUint(speaker.Remaining, 10))
	set("X-RateLimit-Reset", strconv.FormatInt(Seconds(speaker.ResetAfter), 10))
}

func speaksBefore(a, b *client.Limited) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return isLonger(a.RetryAfter, b.RetryAfter)
}

// isLonger compares two retry times: an unknown one is longer than all that are known, and
// Never is the longest.
func isLonger(a, b time.Duration) bool {
	if isKnown := b >= 0; isKnown != (a >= 0) {
		return isKnown
	}
	return a > b
}

// setPolicies sets RateLimit-Policy and RateLimit as the daemon does, with an item
// for each limit that is not in shadow mode.
func (g *Guard[R, S, H]) setPolicies(v Verdict, set func(name, value string)) {
	var list headers.List
	for i := range v.Result.Limits {
		l := &v.Result.Limits[i]
		if l.Shadow {
			continue
		}
		reset := l.ResetAfter
		if l.RetryAfter > 0 {
			reset = l.RetryAfter // so that both headers name the same time
		}
		list.Add(headers.Policy{
			Name:  g.policyName(v, l),
			Quota: int64(min(l.Capacity, math.MaxInt64)), Window: window(l),
			Remaining: int64(min(l.Remaining, math.MaxInt64)), Reset: Seconds(reset), IsConcurrent: l.Algorithm == client.Concurrency,
		})
	}
	if !list.IsEmpty() {
		set(headers.PolicyField, string(list.AppendPolicies(nil)))
		set(headers.LimitField, string(list.AppendLimits(nil)))
	}
}

// window returns the seconds in which an empty limit becomes full, or 0 if they
// are not whole: the header has only whole seconds.
func window(l *client.Limited) int64 {
	const second = 1_000_000
	micros := uint64(l.Period.Microseconds())
	if l.Algorithm.IsBucket() && l.Requests > 0 {
		high, low := bits.Mul64(l.Capacity, micros)
		if high >= l.Requests {
			return 0
		}
		var rest uint64
		if micros, rest = bits.Div64(high, low, l.Requests); rest != 0 {
			return 0
		}
	}
	if micros%second != 0 {
		return 0
	}
	return int64(micros / second)
}

// policyName returns the limit's name, or the keys of its descriptor. Callers
// choose neither.
func (g *Guard[R, S, H]) policyName(v Verdict, l *client.Limited) string {
	if l.Name != "" {
		return l.Name
	}
	if l.Descriptor >= len(v.asked) {
		return "limit" // daemons do not send this
	}
	d := &g.options.Descriptors[v.asked[l.Descriptor]]
	var keys []string
	for _, p := range d.Parts {
		keys = append(keys, p.Key)
	}
	if d.HolderKey != "" {
		keys = append(keys, d.HolderKey)
	}
	return strings.Join(keys, "/")
}
