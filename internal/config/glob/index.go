package glob

import (
	"math/bits"
	"sync"
)

// patternIndex finds the patterns of a long list that can match a value. Each pattern is
// filed once, under whichever of its texts is the rarest: the text before the first star,
// the text after the last one, or some bytes between two stars. One pass over the value
// from each side finds the texts in it.
//
// Texts are identified by hash. A collision costs one failed try.
type patternIndex struct {
	prefixes, suffixes patternFiles
	grams              gramFiles
	// longestPrefix and longestSuffix are in bytes.
	longestPrefix, longestSuffix int
	// rest starts the chain of patterns without such a text; next leads from each pattern
	// to a later one of the same chain. Chains end at noPattern.
	rest int32
	next []int32
	// partSizes has a bit for each size that a last gram between stars has.
	partSizes uint
	// notes holds free *searchNotes.
	notes sync.Pool
}

const noPattern = -1

// patternFiles maps the hashes of texts to chains.
type patternFiles struct {
	chains map[uint64]int32
	// filter holds the hashes: most texts of a value are in no file.
	filter hashFilter
}

// chain returns the first pattern under a hash, or noPattern.
func (f *patternFiles) chain(hash uint64) int32 {
	if !f.filter.has(hash) {
		return noPattern
	}
	if i, ok := f.chains[hash]; ok {
		return i
	}
	return noPattern
}

func (f *patternFiles) seal() {
	f.filter = newHashFilter(len(f.chains))
	for hash := range f.chains {
		f.filter.add(hash)
	}
}

// hashFilter contains all hashes that were added, and few others.
type hashFilter struct {
	bits  []uint64
	shift int
}

// newHashFilter returns a filter for n hashes, with at least 16 bits for each.
func newHashFilter(n int) hashFilter {
	words := 1 << bits.Len(uint(n/4))
	return hashFilter{make([]uint64, words), 64 - 6 - bits.TrailingZeros(uint(words))}
}

func (f *hashFilter) bit(hash uint64) (word *uint64, mask uint64) {
	n := hash * 0x9e3779b97f4a7c15 >> f.shift
	return &f.bits[n/64], 1 << (n % 64)
}

func (f *hashFilter) has(hash uint64) bool {
	word, mask := f.bit(hash)
	return *word&mask != 0
}

func (f *hashFilter) add(hash uint64) {
	word, mask := f.bit(hash)
	*word |= mask
}

// A hash is FNV-1a, computed forwards over prefixes and backwards over suffixes.
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

func newPatternIndex(list []pattern) *patternIndex {
	prefixes, suffixes, grams := make(map[uint64]int32), make(map[uint64]int32), make(map[uint64]int32)
	for i := range list {
		p := &list[i]
		prefixes[p.prefixHash()]++
		suffixes[p.suffixHash()]++
		p.eachGram(func(g gram) { grams[g.hash()]++ })
	}
	x := &patternIndex{rest: noPattern, next: make([]int32, len(list))}
	x.prefixes.chains, x.suffixes.chains, x.grams.chains = make(map[uint64]int32), make(map[uint64]int32), make(map[uint64]int32)
	// Last to first, so that chains are in order.
	for i := len(list) - 1; i >= 0; i-- {
		for _, m := range list[i].middle {
			x.partSizes |= 1 << min(len(m.text), gramSize)
		}
		x.file(&list[i], int32(i), prefixes, suffixes, grams)
	}
	x.prefixes.seal()
	x.suffixes.seal()
	x.grams.seal()
	return x
}

// file puts a pattern at the head of its chain, given how many patterns have each prefix,
// suffix and gram.
func (x *patternIndex) file(p *pattern, i int32, prefixes, suffixes, grams map[uint64]int32) {
	files, hash, fewest, size := (*patternFiles)(nil), uint64(0), int32(len(x.next)), 0
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
	p.eachGram(func(g gram) {
		if h := g.hash(); files == nil || grams[h] < fewest {
			consider(&x.grams.patternFiles, h, grams[h])
			size = g.size
		}
	})
	switch files {
	case nil:
		x.next[i], x.rest = x.rest, i
		return
	case &x.prefixes:
		x.longestPrefix = max(x.longestPrefix, len(p.prefix))
	case &x.suffixes:
		x.longestSuffix = max(x.longestSuffix, len(p.suffix))
	case &x.grams.patternFiles:
		x.grams.sizes |= 1 << size
	}
	head, ok := files.chains[hash]
	if !ok {
		head = noPattern
	}
	x.next[i], files.chains[hash] = head, i
}
