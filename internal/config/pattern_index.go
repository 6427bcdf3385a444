package config

import "math/bits"

// patternIndex finds the patterns of a long list that can match a value. Each
// pattern is filed once, under that of its texts which the fewest others have:
// what stands before the first star, what stands after the last one, or four
// bytes between two stars. One pass over the value from each side finds the
// texts that it has.
//
// Texts are known by hashes. Two of the same hash only cost a try in vain.
type patternIndex struct {
	prefixes, suffixes, grams patternFiles
	// longestPrefix and longestSuffix are in bytes.
	longestPrefix, longestSuffix int
	// rest begins the chain of patterns without such a text; next leads from
	// each pattern to a later one of the same chain. Chains end at noPattern.
	rest  int32
	rests int // in that chain
	next  []int32
}

const noPattern = -1

// patternFiles leads from the hashes of texts to chains.
type patternFiles struct {
	chains map[uint64]int32
	// filter has a bit for each hash, and few others: most texts of a value
	// are in no file.
	filter []uint64
	shift  int
}

func (f *patternFiles) bit(hash uint64) (word int, mask uint64) {
	n := hash * 0x9e3779b97f4a7c15 >> f.shift
	return int(n >> 6), 1 << (n & 63)
}

// chain returns the first pattern under a hash, or noPattern.
func (f *patternFiles) chain(hash uint64) int32 {
	word, mask := f.bit(hash)
	if f.filter[word]&mask == 0 {
		return noPattern
	}
	if i, ok := f.chains[hash]; ok {
		return i
	}
	return noPattern
}

// seal makes the filter, of 16 bits for each hash and more.
func (f *patternFiles) seal() {
	words := 1 << bits.Len(uint(len(f.chains)/4))
	f.filter, f.shift = make([]uint64, words), 64-6-bits.TrailingZeros(uint(words))
	for hash := range f.chains {
		word, mask := f.bit(hash)
		f.filter[word] |= mask
	}
}

// A hash is FNV-1a, taken forwards of prefixes and backwards of suffixes.
const hashStart = 0xcbf29ce484222325

func hashByte(hash uint64, c byte) uint64 { return (hash ^ uint64(c)) * 0x100000001b3 }

func (p *pattern) prefixHash() uint64 {
	hash := uint64(hashStart)
	for i := range len(p.prefix) {
		hash = hashByte(hash, p.prefix[i])
	}
	return hash
}

func (p *pattern) suffixHash() uint64 {
	hash := uint64(hashStart)
	for i := len(p.suffix) - 1; i >= 0; i-- {
		hash = hashByte(hash, p.suffix[i])
	}
	return hash
}

// gramSize is the length of the texts between stars by which patterns are
// filed.
const gramSize = 4

// eachGram calls f with all runs of gramSize bytes between stars.
func (p *pattern) eachGram(f func(gram uint64)) {
	for _, part := range p.middle {
		var gram uint32
		for i := range len(part) {
			gram = gram<<8 | uint32(part[i])
			if i >= gramSize-1 {
				f(uint64(gram))
			}
		}
	}
}

// newPatternIndex also returns the length of the longest chain.
func newPatternIndex(list []pattern) (x *patternIndex, longest int) {
	prefixes, suffixes, grams := make(map[uint64]int32), make(map[uint64]int32), make(map[uint64]int32)
	for i := range list {
		p := &list[i]
		prefixes[p.prefixHash()]++
		suffixes[p.suffixHash()]++
		p.eachGram(func(gram uint64) { grams[gram]++ })
	}
	x = &patternIndex{rest: noPattern, next: make([]int32, len(list))}
	x.prefixes.chains, x.suffixes.chains, x.grams.chains = make(map[uint64]int32), make(map[uint64]int32), make(map[uint64]int32)
	// From the last on, so that chains are in order.
	for i := len(list) - 1; i >= 0; i-- {
		longest = max(longest, x.file(&list[i], int32(i), prefixes, suffixes, grams))
	}
	x.prefixes.seal()
	x.suffixes.seal()
	x.grams.seal()
	return x, longest
}

// file puts a pattern before its chain. It returns how many patterns can be in
// that at most, given how many have each prefix, suffix and gram.
func (x *patternIndex) file(p *pattern, i int32, prefixes, suffixes, grams map[uint64]int32) int {
	files, hash, fewest := (*patternFiles)(nil), uint64(0), int32(len(x.next))
	consider := func(f *patternFiles, h uint64, others int32) {
		if files == nil || others < fewest {
			files, hash, fewest = f, h, others
		}
	}
	if p.prefix != "" {
		h := p.prefixHash()
		consider(&x.prefixes, h, prefixes[h])
	}
	if p.suffix != "" {
		h := p.suffixHash()
		consider(&x.suffixes, h, suffixes[h])
	}
	p.eachGram(func(gram uint64) { consider(&x.grams, gram, grams[gram]) })
	switch files {
	case nil:
		x.next[i], x.rest = x.rest, i
		x.rests++
		return x.rests
	case &x.prefixes:
		x.longestPrefix = max(x.longestPrefix, len(p.prefix))
	case &x.suffixes:
		x.longestSuffix = max(x.longestSuffix, len(p.suffix))
	}
	head, ok := files.chains[hash]
	if !ok {
		head = noPattern
	}
	x.next[i], files.chains[hash] = head, i
	return int(fewest)
}

// first returns the index of the first pattern that matches, or -1.
func (x *patternIndex) first(list []pattern, value string) int {
	s := patternSearch{x, list, value, int32(len(list))}
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
	if len(x.grams.chains) > 0 {
		s.tryGrams()
	}
	if int(s.best) == len(list) {
		return -1
	}
	return int(s.best)
}

// patternSearch looks for the first pattern that matches a value; best is the
// one found so far.
type patternSearch struct {
	*patternIndex
	list  []pattern
	value string
	best  int32
}

// try tries the patterns of a chain that stand before the best.
func (s *patternSearch) try(i int32) {
	for ; i != noPattern && i < s.best; i = s.next[i] {
		if s.list[i].match(s.value) {
			s.best = i
			return
		}
	}
}

// maxGramChains bounds how many chains are tried for what stands between
// stars, and remembered, so that none is tried twice.
const maxGramChains = 16

// tryGrams tries the patterns that are filed under something in the value. A
// value may be made to repeat what leads to long chains, or to many: then all
// patterns are tried, once.
func (s *patternSearch) tryGrams() {
	var tried [maxGramChains]int32
	n := 0
	var gram uint32
next:
	for i := range len(s.value) {
		gram = gram<<8 | uint32(s.value[i])
		if i < gramSize-1 {
			continue
		}
		chain := s.grams.chain(uint64(gram))
		if chain == noPattern || chain >= s.best {
			continue
		}
		for _, known := range tried[:n] {
			if known == chain {
				continue next
			}
		}
		if n == maxGramChains {
			s.tryAll()
			return
		}
		tried[n] = chain
		n++
		s.try(chain)
	}
}

// tryAll tries all patterns that stand before the best.
func (s *patternSearch) tryAll() {
	for i := range s.list[:s.best] {
		if s.list[i].match(s.value) {
			s.best = int32(i)
			return
		}
	}
}
