package glob

import (
	"math/bits"
	"slices"
)

// patternSearch looks for the first pattern that matches a value.
type patternSearch struct {
	*patternIndex
	list  []pattern
	value string
	// ends is set to consider only patterns with nothing between stars.
	ends bool
	// best is the first match so far, or the number of patterns.
	best int32

	// tries counts patterns with something between stars, up to manyTries.
	tries int
	// few holds the chains already tried for grams; kept is their number.
	few  [fewChains]int32
	kept int
	// notes are nil until they save time.
	notes *searchNotes
}

const (
	// fewChains is the number up to which chains are compared one by one.
	fewChains = 16
	// fewTries is the number of tries that take no longer than noting which grams the
	// value has where.
	fewTries = 16
)

// searchNotes holds what is known of a value on which many patterns are tried.
type searchNotes struct {
	// tried has a bit for each pattern that starts a chain already tried.
	tried     []uint64
	hasTried  bool
	places    valuePlaces
	hasPlaces bool
}

// first returns the index of the first pattern that matches, or -1; with ends it
// considers only patterns with nothing between stars.
func (x *patternIndex) first(list []pattern, value string, ends bool) int {
	s := patternSearch{patternIndex: x, list: list, value: value, ends: ends, best: int32(len(list))}
	s.try(x.rest)
	if x.longestPrefix > 0 {
		hash := uint64(hashStart)
		for i := range min(len(value), x.longestPrefix) {
			hash = hashByte(hash, value[i])
			s.try(x.prefixes.chain(hash))
		}
	}
	if x.longestSuffix > 0 {
		hash := uint64(hashStart)
		for i := range min(len(value), x.longestSuffix) {
			hash = hashByte(hash, value[len(value)-1-i])
			s.try(x.suffixes.chain(hash))
		}
	}
	if len(x.grams.chains) > 0 && !ends {
		s.tryGrams()
	}
	if s.notes != nil {
		x.notes.Put(s.notes)
	}
	if int(s.best) == len(list) {
		return -1
	}
	return int(s.best)
}

// try tries the patterns of a chain that come before the best.
func (s *patternSearch) try(i int32) {
	for ; i != noPattern && i < s.best; i = s.next[i] {
		p := &s.list[i]
		if len(p.middle) > 0 && !s.isWorthASearch(p) {
			continue
		}
		if p.match(s.value) {
			s.best = i
			return
		}
	}
}

// isWorthASearch reports whether a pattern with something between stars is considered and
// may match.
func (s *patternSearch) isWorthASearch(p *pattern) bool {
	switch {
	case s.ends:
		return false
	case s.tries < fewTries:
		s.tries++
		return true
	case len(s.value) > MaxSearchedValue: // there are few such patterns
		return true
	}
	n := s.note()
	if !n.hasPlaces {
		n.places.fill(s.value, s.partSizes)
		n.hasPlaces = true
	}
	return n.places.allow(p.middle, len(p.prefix))
}

// tryGrams tries the patterns filed under a gram of the value.
func (s *patternSearch) tryGrams() {
	value, sizes, tails := s.value, s.grams.sizes, &s.grams.tails
	short := sizes & (1<<tailSize - 1)
	var last uint64
	for i := range len(value) {
		last = last<<8 | uint64(value[i])
		if short != sizes && tails.has(tailHash(last)) {
			s.tryGramsAt(last, sizes, i+1)
		} else if short != 0 {
			s.tryGramsAt(last, short, i+1)
		}
	}
}

// tryGramsAt does so for grams of these sizes that end after so many bytes.
func (s *patternSearch) tryGramsAt(last uint64, sizes uint, end int) {
	for ; sizes != 0; sizes &= sizes - 1 {
		size := bits.TrailingZeros(sizes)
		if size > end {
			return
		}
		chain := s.grams.chain(lastGram(last, size).hash())
		if chain != noPattern && chain < s.best && s.isNew(chain) {
			s.try(chain)
		}
	}
}

// isNew reports whether the chain was not tried before: a value may repeat the gram that
// leads to a long chain.
func (s *patternSearch) isNew(chain int32) bool {
	if s.kept < fewChains {
		if slices.Contains(s.few[:s.kept], chain) {
			return false
		}
		s.few[s.kept] = chain
		s.kept++
		return true
	}
	n := s.note()
	if !n.hasTried {
		clear(n.tried)
		n.hasTried = true
		for _, c := range s.few {
			n.tried[c/64] |= 1 << (c % 64)
		}
	}
	word, bit := &n.tried[chain/64], uint64(1)<<(chain%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

func (s *patternSearch) note() *searchNotes {
	if s.notes == nil {
		n, _ := s.patternIndex.notes.Get().(*searchNotes)
		if n == nil {
			n = &searchNotes{tried: make([]uint64, (len(s.list)+63)/64)}
		}
		n.hasTried, n.hasPlaces = false, false
		s.notes = n
	}
	return s.notes
}
