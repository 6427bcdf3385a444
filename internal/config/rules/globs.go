package rules

import "strings"

// Globs is a list of patterns that finds the first one that matches a value. The zero Globs
// is empty.
type Globs struct {
	list []pattern
	// inner is how many patterns have something between stars, so that the value must be
	// searched.
	inner int
}

const (
	// MaxPatterns is how many patterns a key may have at one level: they are tried one after the
	// other.
	MaxPatterns = 1000
	// FewInner patterns with something between stars are tried on values of any length:
	// each takes less than a millisecond to search 1 MiB in vain.
	FewInner = 16
	// MaxSearchedValue is the length in bytes of the longest value on which more of them
	// are tried. A caller can build a value of the texts between their stars, and the
	// time to search it grows with its length.
	MaxSearchedValue = 2048
)

// Add appends a pattern.
func (ps *Globs) Add(text string) {
	p := newPattern(text)
	if len(p.middle) > 0 {
		ps.inner++
	}
	ps.list = append(ps.list, p)
}

// Len returns the number of patterns.
func (ps *Globs) Len() int { return len(ps.list) }

// Text returns the pattern at an index, as it was added.
func (ps *Globs) Text(i int) string { return ps.list[i].text }

// First returns the index of the first pattern that matches, or -1. Unless there are few
// of them, patterns with something between stars match no value longer than
// MaxSearchedValue.
func (ps *Globs) First(value string) int {
	return ps.first(value, ps.inner > FewInner && len(value) > MaxSearchedValue)
}

// FirstThatCovers returns the index of the first pattern that matches everything that a
// pattern of the list does. It may be that pattern itself.
//
// A star of a later pattern stands for text that only a star of an earlier one can match,
// so one covers the other exactly if it matches the other's text with the stars taken
// literally.
func (ps *Globs) FirstThatCovers(pattern string) int { return ps.first(pattern, false) }

// IsNeverFirst reports whether pattern i is never the first to match: it is too long, or
// an earlier one matches everything that it does, even in values that are not searched.
func (ps *Globs) IsNeverFirst(i int) bool {
	first := ps.first(ps.list[i].text, ps.inner > FewInner)
	return first >= 0 && first < i || ps.IsTooLong(ps.list[i].text)
}

// FirstThatCoversAll returns the index of the first pattern that matches every
// value, or -1.
func (ps *Globs) FirstThatCoversAll() int {
	for i := range ps.list {
		if strings.Trim(ps.list[i].text, "*") == "" {
			return i
		}
	}
	return -1
}

// first returns the index of the first pattern that matches, or -1. If ends is set, it
// considers only patterns with nothing between stars.
func (ps *Globs) first(value string, ends bool) int {
	for i := range ps.list {
		p := &ps.list[i]
		if (!ends || len(p.middle) == 0) && p.match(value) {
			return i
		}
	}
	return -1
}

// IsTooLong reports whether a pattern of the list can match no value, because values long
// enough for it are not searched.
func (ps *Globs) IsTooLong(pattern string) bool {
	if ps.inner <= FewInner || len(pattern) <= MaxSearchedValue {
		return false
	}
	p := newPattern(pattern)
	return len(p.middle) > 0 && len(pattern)-strings.Count(pattern, "*") > MaxSearchedValue
}
