package glob

import (
	"cmp"
	"slices"
)

// patternChain is a chain of an index, starting at the pattern head.
type patternChain struct {
	head int32
	// patterns is the number of patterns in it, and bytes the length of the text that
	// leads to it.
	patterns, bytes int
}

func (x *patternIndex) chain(head int32, bytes int) patternChain {
	c := patternChain{head: head, bytes: bytes}
	for i := head; i != noPattern; i = x.next[i] {
		c.patterns++
	}
	return c
}

// longestChain returns the number of patterns in the longest chain.
func (x *patternIndex) longestChain() int {
	longest := x.chain(x.rest, 0).patterns
	for _, files := range [...]*patternFiles{&x.prefixes, &x.suffixes, &x.grams.patternFiles} {
		for _, head := range files.chains {
			longest = max(longest, x.chain(head, 0).patterns)
		}
	}
	return longest
}

// gramChains returns the chains of patterns filed by grams, those with the most patterns
// per byte of the leading text first.
func (x *patternIndex) gramChains(list []pattern) []patternChain {
	var chains []patternChain
	for hash, head := range x.grams.chains {
		bytes := gramSize
		list[head].eachGram(func(g gram) {
			if g.hash() == hash {
				bytes = g.size
			}
		})
		chains = append(chains, x.chain(head, bytes))
	}
	slices.SortFunc(chains, func(a, b patternChain) int {
		return cmp.Or(cmp.Compare(b.patterns*a.bytes, a.patterns*b.bytes), cmp.Compare(a.head, b.head))
	})
	return chains
}

// Costliest estimates how many patterns are tried at worst on a value of the given
// length. It also returns the first pattern of the longest chain among them, and the
// length of that chain. It returns 0, -1 and 0 if there are few patterns.
func (ps *Set) Costliest(bytes int) (tries, pattern, together int) {
	if ps.index == nil {
		return 0, -1, 0
	}
	tries, largest := ps.index.worstTries(ps.list, bytes)
	return tries, int(largest.head), largest.patterns
}

// worstTries estimates how many patterns are tried at worst on a value of the given
// length, and returns the longest chain among them.
func (x *patternIndex) worstTries(list []pattern, bytes int) (tries int, largest patternChain) {
	add := func(c patternChain) {
		tries += c.patterns
		if c.patterns > largest.patterns {
			largest = c
		}
	}
	// A value has only one beginning and one end. In between it has as many grams as fit.
	for _, files := range [...]*patternFiles{&x.prefixes, &x.suffixes} {
		var longest patternChain
		for _, head := range files.chains {
			if c := x.chain(head, 0); c.patterns > longest.patterns || c.patterns == longest.patterns && c.head < longest.head {
				longest = c
			}
		}
		add(longest)
	}
	for _, c := range x.gramChains(list) {
		if bytes -= c.bytes; bytes < 0 {
			break
		}
		add(c)
	}
	return tries, largest
}
