package glob

import "strings"

// Set is a list of patterns that finds the first one that matches a value. The zero Set
// is empty. Once sealed it may be used concurrently.
type Set struct {
	list []pattern
	// index finds the few patterns that can match a value; it is nil while there are few
	// in all.
	index *patternIndex
	// manyInner is set if more than FewInner patterns have something between stars, which
	// means that the value must be searched.
	manyInner bool
	// crowded is set if comparing each pattern with the others would take too long: that
	// is quadratic in the number of similar ones.
	crowded bool
}

const (
	// fewPatterns is the number up to which an index is no faster than trying one by one.
	fewPatterns = 8
	// maxPatternTries bounds the search for patterns that cannot match.
	maxPatternTries = 5_000_000
	// FewInner patterns with something between stars are tried on values of any length:
	// each takes less than a millisecond to search 1 MiB in vain.
	FewInner = 16
	// MaxSearchedValue is the length in bytes of the longest value on which more of them
	// are tried. A caller can build a value of the texts between their stars, and the
	// time to search it grows with the square of its length.
	MaxSearchedValue = 2048
)

// Add appends a pattern.
func (ps *Set) Add(text string) { ps.list = append(ps.list, newPattern(text)) }

// Len returns the number of patterns.
func (ps *Set) Len() int { return len(ps.list) }

// Text returns the pattern at an index, as it was added.
func (ps *Set) Text(i int) string { return ps.list[i].text }

// IsCrowded reports whether comparing each pattern of a sealed Set with the others would
// take too long.
func (ps *Set) IsCrowded() bool { return ps.crowded }

// Seal builds the index. Nothing may be added afterwards.
func (ps *Set) Seal() {
	inner := 0
	for i := range ps.list {
		if len(ps.list[i].middle) > 0 {
			inner++
		}
	}
	ps.manyInner = inner > FewInner
	if len(ps.list) <= fewPatterns {
		return
	}
	ps.index = newPatternIndex(ps.list)
	ps.crowded = ps.index.longestChain()*len(ps.list) > maxPatternTries
}

// First returns the index of the first pattern that matches, or -1. Unless there are few
// of them, patterns with something between stars match no value longer than
// MaxSearchedValue.
func (ps *Set) First(value string) int {
	return ps.search(value, ps.manyInner && len(value) > MaxSearchedValue)
}

// FirstThatCovers returns the index of the first pattern that matches everything that a
// pattern of the Set does. It may be that pattern itself.
//
// A star of a later pattern stands for text that only a star of an earlier one can match,
// so one covers the other exactly if it matches the other's text with the stars taken
// literally.
func (ps *Set) FirstThatCovers(pattern string) int { return ps.search(pattern, false) }

// IsNeverFirst reports whether pattern i is certainly never the first to match: it is too
// long, or an earlier one matches everything that it does, even in values that are not
// searched. It is false for a crowded Set.
func (ps *Set) IsNeverFirst(i int) bool {
	if ps.crowded {
		return false
	}
	first := ps.search(ps.list[i].text, ps.manyInner)
	return first >= 0 && first < i || ps.IsTooLong(ps.list[i].text)
}

// FirstThatCoversAll returns the index of the first pattern that matches every
// value, or -1.
func (ps *Set) FirstThatCoversAll() int {
	for i := range ps.list {
		if strings.Trim(ps.list[i].text, "*") == "" {
			return i
		}
	}
	return -1
}

// search is First. If ends is set, it considers only patterns with nothing between stars.
func (ps *Set) search(value string, ends bool) int {
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

// IsTooLong reports whether a pattern of the Set can match no value, because values long
// enough for it are not searched.
func (ps *Set) IsTooLong(pattern string) bool {
	if !ps.manyInner || len(pattern) <= MaxSearchedValue {
		return false
	}
	p := newPattern(pattern)
	return len(p.middle) > 0 && len(pattern)-strings.Count(pattern, "*") > MaxSearchedValue
}
