package glob

import "strings"

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
