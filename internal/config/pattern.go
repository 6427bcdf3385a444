package config

import "strings"

// pattern is a value in which each * stands for any run of bytes, the empty
// one too.
type pattern struct {
	// prefix and suffix are what stands before the first star and after the
	// last; middle is what stands between two stars, in order.
	prefix, suffix string
	middle         []innerText
	node           *node
}

// innerText stands between two stars; it is not empty.
type innerText struct {
	text string
	// slot is that of its last gram.
	slot uint16
}

func isPattern(value string) bool { return strings.Contains(value, "*") }

func newPattern(n *node) pattern {
	parts := strings.Split(n.entry.Value, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1], node: n}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			p.middle = append(p.middle, newInnerText(part))
		}
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
	for i := range p.middle {
		text := p.middle[i].text
		at := strings.Index(value, text)
		if at < 0 {
			return false
		}
		value = value[at+len(text):]
	}
	return true
}

// patterns are those of one key at one level, in file order.
type patterns struct {
	list []pattern
	// index finds the few that can match a value; it is nil while there are few.
	index *patternIndex
	// manyInner is set if more than fewInner have something between stars, for
	// which a value must be searched.
	manyInner bool
	// crowded is set if it would take too long to hold each pattern against
	// the others: it is quadratic in those that are alike.
	crowded bool
}

const (
	// fewPatterns are as quickly tried one after the other.
	fewPatterns = 8
	// maxPatternTries bounds the search for patterns that cannot match.
	maxPatternTries = 5_000_000
	// fewInner patterns with something between stars are tried on values of any
	// length: each takes less than a millisecond to search 1 MiB in vain.
	fewInner = 16
	// MaxSearchedValue is how many bytes a value has at most that more of them
	// are tried on. Who sends a value can make it of what they have between
	// their stars; what that costs grows with the square of its length.
	MaxSearchedValue = 2048
)

// seal builds the index. Nothing may be added afterwards.
func (ps *patterns) seal() {
	inner := 0
	for i := range ps.list {
		if len(ps.list[i].middle) > 0 {
			inner++
		}
	}
	ps.manyInner = inner > fewInner
	if len(ps.list) <= fewPatterns {
		return
	}
	ps.index = newPatternIndex(ps.list)
	ps.crowded = ps.index.longestChain()*len(ps.list) > maxPatternTries
}

// first returns the index of the first pattern that matches, or -1. Patterns
// with something between stars match no long value, unless there are few.
func (ps *patterns) first(value string) int {
	return ps.search(value, ps.manyInner && len(value) > MaxSearchedValue)
}

// search is first, of the patterns with nothing between stars if ends is set.
func (ps *patterns) search(value string, ends bool) int {
	if ps.index != nil {
		return ps.index.first(ps.list, value, ends)
	}
	for i := range ps.list {
		if ps.list[i].match(value) {
			return i
		}
	}
	return -1
}

// isTooLong reports whether the patterns' key searches no value that is long
// enough for one of them.
func (ps *patterns) isTooLong(n *node) bool {
	if !ps.manyInner || len(n.entry.Value) <= MaxSearchedValue {
		return false
	}
	p := newPattern(n)
	return len(p.middle) > 0 && len(p.text())-strings.Count(p.text(), "*") > MaxSearchedValue
}
