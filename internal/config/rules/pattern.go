package rules

import "strings"

// pattern is a value in which each * stands for any run of bytes, even an empty one.
type pattern struct {
	// prefix is the text before the first star, suffix the text after the last, and
	// middle the texts between stars, in order.
	prefix, suffix string
	middle         []string // none is empty
	text           string   // as it was written
}

// HasStar reports whether a value is a pattern.
func HasStar(value string) bool { return strings.Contains(value, "*") }

func newPattern(text string) pattern {
	parts := strings.Split(text, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1], text: text}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			p.middle = append(p.middle, part)
		}
	}
	return p
}

// match reports whether the pattern matches the value. Each part takes the first free
// place; if the pattern can match at all, it matches that way.
func (p *pattern) match(value string) bool {
	if len(value) < len(p.prefix)+len(p.suffix) || !strings.HasPrefix(value, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	value = value[len(p.prefix) : len(value)-len(p.suffix)]
	for _, text := range p.middle {
		at := strings.Index(value, text)
		if at < 0 {
			return false
		}
		value = value[at+len(text):]
	}
	return true
}

// Covers reports whether a pattern matches every value that another does.
func Covers(pattern, other string) bool {
	p := newPattern(pattern)
	return p.match(other)
}

// Overlap reports whether some value matches both patterns. Each has a star, so the texts
// between the stars of both can follow one another; only what stands at the ends can rule
// the other out.
func Overlap(a, b string) bool {
	p, q := newPattern(a), newPattern(b)
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}
