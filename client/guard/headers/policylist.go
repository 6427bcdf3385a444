package headers

import (
	"strconv"
	"strings"
)

// The names of the fields.
const (
	PolicyField = "RateLimit-Policy"
	LimitField  = "RateLimit"
)

// Policy is an item of both fields.
type Policy struct {
	// Name is any text. Items of a list have different names: a second "a"
	// becomes "a-2".
	Name string
	// Quota is how much can be taken at once.
	Quota int64
	// Window is how many seconds it takes until an empty quota is full; 0 leaves
	// it out.
	Window int64
	// Remaining is how much of the quota remains.
	Remaining int64
	// Reset is the number of seconds for which no more than Remaining is available.
	Reset int64
	// IsConcurrent says that the quota is of requests in flight: then there is no
	// Window, and Reset is not known.
	IsConcurrent bool
}

// List is a list of policies. The zero List is empty.
type List struct {
	policies []Policy
	used     map[string]int // by name: the number that was last appended to it
}

// Add adds a policy.
func (l *List) Add(p Policy) {
	if l.used == nil {
		l.used = make(map[string]int)
	}
	p.Name = l.unique(quotable(p.Name))
	l.policies = append(l.policies, p)
}

// IsEmpty reports whether there are no policies, and so no fields to write.
func (l *List) IsEmpty() bool { return len(l.policies) == 0 }

// AppendPolicies appends the value of RateLimit-Policy.
func (l *List) AppendPolicies(dst []byte) []byte {
	for i := range l.policies {
		p := &l.policies[i]
		dst = appendParameter(appendName(dst, i, p.Name), ";q=", p.Quota)
		switch {
		case p.IsConcurrent:
			dst = append(dst, `;qu="concurrent-requests"`...)
		case p.Window > 0:
			dst = appendParameter(dst, ";w=", p.Window)
		}
	}
	return dst
}

// AppendLimits appends the value of RateLimit.
func (l *List) AppendLimits(dst []byte) []byte {
	for i := range l.policies {
		p := &l.policies[i]
		dst = appendParameter(appendName(dst, i, p.Name), ";r=", p.Remaining)
		if !p.IsConcurrent {
			dst = appendParameter(dst, ";t=", p.Reset)
		}
	}
	return dst
}

// unique returns name, with a number if the list has it already.
func (l *List) unique(name string) string {
	n := l.used[name]
	result := name
	for n > 0 && l.used[result] > 0 {
		n++
		result = name + "-" + strconv.Itoa(n)
	}
	l.used[name] = max(1, n)
	l.used[result] = max(1, l.used[result])
	return result
}

// appendName appends the name that begins the i-th item of a list (RFC 9651,
// section 3.1).
func appendName(dst []byte, i int, name string) []byte {
	if i > 0 {
		dst = append(dst, ", "...)
	}
	return append(append(append(dst, '"'), name...), '"')
}

// maxInteger is the largest integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// appendParameter appends a parameter whose value is a whole number, or the largest that
// there is.
func appendParameter(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), min(value, maxInteger), 10)
}

// quotable returns text as the inside of a structured field's string (RFC 9651,
// section 3.3.3). Those hold only printable ASCII, so other characters become
// question marks.
func quotable(text string) string {
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
