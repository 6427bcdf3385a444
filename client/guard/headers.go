package guard

import (
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// SetHeaders calls set with each header that tells of a verdict.
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

// setXRateLimit tells of the limit that speaks for the whole request. Shadow
// limits do not: those who are limited see nothing of them.
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
	set("X-RateLimit-Limit", strconv.FormatUint(uint64(speaker.Capacity), 10))
	set("X-RateLimit-Remaining", strconv.FormatUint(uint64(speaker.Remaining), 10))
	set("X-RateLimit-Reset", strconv.FormatInt(Seconds(speaker.ResetAfter), 10))
}

func speaksBefore(a, b *client.Limited) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return b.RetryAfter != client.Never && (a.RetryAfter == client.Never || a.RetryAfter > b.RetryAfter)
}

// setPolicies sets RateLimit-Policy and RateLimit as the daemon does: with an
// item for each limit but for shadow limits.
func (g *Guard[R, S, H]) setPolicies(v Verdict, set func(name, value string)) {
	var policies, remaining []byte
	used := make(map[string]int) // how often each name was wanted
	for i := range v.Result.Limits {
		l := &v.Result.Limits[i]
		if l.Shadow {
			continue
		}
		if len(policies) > 0 {
			policies, remaining = append(policies, ", "...), append(remaining, ", "...)
		}
		name := `"` + unique(g.policyName(v, l), used) + `"`
		policies = append(append(policies, name...), ";q="...)
		policies = strconv.AppendUint(policies, uint64(l.Capacity), 10)
		if w := window(l); w > 0 {
			policies = strconv.AppendUint(append(policies, ";w="...), w, 10)
		}
		t := l.ResetAfter
		if l.RetryAfter > 0 {
			t = l.RetryAfter // so that it ends when Retry-After says to come back
		}
		remaining = append(append(remaining, name...), ";r="...)
		remaining = strconv.AppendUint(remaining, uint64(l.Remaining), 10)
		remaining = strconv.AppendInt(append(remaining, ";t="...), Seconds(t), 10)
	}
	if len(policies) > 0 {
		set("RateLimit-Policy", string(policies))
		set("RateLimit", string(remaining))
	}
}

// window is the time in seconds in which an empty limit becomes full, or 0 if it
// is not whole seconds, which cannot be said.
func window(l *client.Limited) uint64 {
	const second = 1_000_000
	micros := uint64(l.Period.Microseconds())
	if l.Algorithm.IsBucket() && l.Requests > 0 {
		high, low := bits.Mul64(uint64(l.Capacity), micros)
		if high >= uint64(l.Requests) {
			return 0
		}
		var rest uint64
		if micros, rest = bits.Div64(high, low, uint64(l.Requests)); rest != 0 {
			return 0
		}
	}
	if micros%second != 0 {
		return 0
	}
	return micros / second
}

// policyName returns the limit's name, or the keys of its descriptor. Neither is
// a caller's.
func (g *Guard[R, S, H]) policyName(v Verdict, l *client.Limited) string {
	if l.Name != "" {
		return fieldString(l.Name)
	}
	if l.Descriptor >= len(v.asked) {
		return "limit" // a daemon would not say so
	}
	var keys []string
	for _, p := range g.options.Descriptors[v.asked[l.Descriptor]].Parts {
		keys = append(keys, p.Key)
	}
	return fieldString(strings.Join(keys, "/"))
}

// unique numbers the names that were used before.
func unique(name string, used map[string]int) string {
	n := used[name]
	result := name
	for n > 0 && used[result] > 0 {
		n++
		result = name + "-" + strconv.Itoa(n)
	}
	used[name] = max(1, n)
	used[result] = max(1, used[result])
	return result
}

// fieldString returns a text as the inside of a structured field's string (RFC
// 9651, section 3.3.3), which holds printable ASCII; other characters become
// question marks.
func fieldString(text string) string {
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
