package config

import "strings"

// pattern is a value in which each * stands for any run of bytes, the empty
// one too.
type pattern struct {
	// prefix and suffix are what stands before the first star and after the
	// last; middle is what stands between two stars, in order.
	prefix, suffix string
	middle         []string
	node           *node
}

func isPattern(value string) bool { return strings.Contains(value, "*") }

func newPattern(n *node) pattern {
	parts := strings.Split(n.entry.Value, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1], node: n}
	if len(parts) > 2 {
		p.middle = parts[1 : len(parts)-1]
	}
	return p
}

// text is the pattern as it was written.
func (p *pattern) text() string { return p.node.entry.Value }

// match reports whether the value is one of the pattern's. Each part takes the
// first place that is free for it; if the pattern can match at all, so it can.
func (p *pattern) match(value string) bool {
	if len(value) < len(p.prefix)+len(p.suffix) || !strings.HasPrefix(value, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	value = value[len(p.prefix) : len(value)-len(p.suffix)]
	for _, part := range p.middle {
		i := strings.Index(value, part)
		if i < 0 {
			return false
		}
		value = value[i+len(part):]
	}
	return true
}

// patterns are those of one key at one level, in file order.
type patterns struct {
	list []pattern
	// index finds the few that can match a value; it is nil while there are few.
	index *patternIndex
	// crowded is set if it would take too long to hold each pattern against
	// the others: it is quadratic in those that are alike.
	crowded bool
}

const (
	// fewPatterns are as quickly tried one after the other.
	fewPatterns = 8
	// maxPatternTries bounds the search for patterns that cannot match.
	maxPatternTries = 5_000_000
)

// seal builds the index. Nothing may be added afterwards.
func (ps *patterns) seal() {
	if len(ps.list) <= fewPatterns {
		return
	}
	var alike int
	ps.index, alike = newPatternIndex(ps.list)
	ps.crowded = alike*len(ps.list) > maxPatternTries
}

// first returns the index of the first pattern that matches, or -1.
func (ps *patterns) first(value string) int {
	if ps.index != nil {
		return ps.index.first(ps.list, value)
	}
	for i := range ps.list {
		if ps.list[i].match(value) {
			return i
		}
	}
	return -1
}
