package script

import (
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Batch encodes what one call of the script decides: groups whose keys have
// the same tag where that matters. One goroutine at a time uses it, as often
// as it likes: the memory stays, what was in it does not.
type Batch struct {
	seed maphash.Seed

	keys     interner
	keyBytes []byte // the distinct keys, one after the other
	keyEnds  []int

	limits     interner
	limitList  []*bucket.Limit // the distinct limits
	limitBytes []byte

	lines interner // of coalesce
	tails []*Group // of coalesce: the last group of each line

	input   []byte   // the lines
	strings []string // what args point to
	args    []any
}

func NewBatch(seed maphash.Seed) *Batch { return &Batch{seed: seed} }

// Encode replaces what the batch holds. Each line is a group and all that are
// linked to it.
func (b *Batch) Encode(lines []*Group) {
	b.reset()
	for _, g := range lines {
		mode := g.Mode
		if mode == Take && g.hasRoles() {
			mode = takeByRole
		}
		b.input = appendNumbers(b.input, int64(mode), count(g), int64(len(g.Hits)))
		for i := range g.Hits {
			h := &g.Hits[i]
			b.input = appendNumbers(b.input, b.key(h.Key), b.limit(h.Limit), h.Cost)
			switch mode {
			case GiveBack:
				b.input = appendNumbers(b.input, g.Decisions[i].At)
			case takeByRole:
				b.input = appendNumbers(b.input, int64(h.Role))
			}
		}
	}
}

func (b *Batch) reset() {
	b.keys.reset()
	b.keyBytes, b.keyEnds = b.keyBytes[:0], b.keyEnds[:0]
	b.limits.reset()
	clear(b.limitList)
	b.limitList, b.limitBytes = b.limitList[:0], b.limitBytes[:0]
	b.input = b.input[:0]
}

// count is how many groups share the line of g.
func count(g *Group) (n int64) {
	for ; g != nil; g = g.Same {
		n++
	}
	return n
}

// key returns the index of a key in KEYS.
func (b *Batch) key(key []byte) int64 {
	i, isNew := b.keys.find(maphash.Bytes(b.seed, key), func(i int) bool { return string(b.keyAt(i)) == string(key) })
	if isNew {
		b.keyBytes = append(b.keyBytes, key...)
		b.keyEnds = append(b.keyEnds, len(b.keyBytes))
	}
	return int64(i) + 1
}

func (b *Batch) keyAt(i int) []byte {
	start := 0
	if i > 0 {
		start = b.keyEnds[i-1]
	}
	return b.keyBytes[start:b.keyEnds[i]]
}

// limit returns the index of a limit in the script's second argument.
func (b *Batch) limit(l *bucket.Limit) int64 {
	i, isNew := b.limits.find(maphash.Comparable(b.seed, l), func(i int) bool { return b.limitList[i] == l })
	if isNew {
		b.limitList = append(b.limitList, l)
		b.limitBytes = appendLimit(b.limitBytes, l)
	}
	return int64(i) + 1
}

// Command returns the arguments of the command that runs the script by its
// SHA; they are good until the batch is used again. skew is how far ahead of
// the clock states may be; clock is empty, or in tests what the script takes
// for its clock.
func (b *Batch) Command(skew, clock string) []any {
	// The client writes a *string as it is, and without the allocation that a
	// string or a []byte in an interface costs. So all of them are parts of
	// one text.
	limits := len(b.keyBytes)
	b.keyBytes = append(append(b.keyBytes, b.limitBytes...), b.input...)
	text := string(b.keyBytes)
	b.keyBytes = b.keyBytes[:limits]

	b.strings = b.strings[:0]
	start := 0
	for _, end := range b.keyEnds {
		b.strings = append(b.strings, text[start:end])
		start = end
	}
	b.strings = append(b.strings, skew, text[limits:limits+len(b.limitBytes)], text[limits+len(b.limitBytes):])
	if clock != "" {
		b.strings = append(b.strings, clock)
	}

	b.args = append(b.args[:0], "evalsha", &SHA, len(b.keyEnds))
	for i := range b.strings {
		b.args = append(b.args, &b.strings[i])
	}
	return b.args
}
