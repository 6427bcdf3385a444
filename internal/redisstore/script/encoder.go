package script

import (
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Encoder encodes the groups that one command decides; on a cluster all their
// keys have the same tag. It keeps its memory from one use to the next. One
// goroutine at a time may use it.
type Encoder struct {
	seed maphash.Seed

	keys     interner
	keyBytes []byte // the distinct keys, one after the other
	keyEnds  []int

	limits     interner
	limitList  []*bucket.Limit // the distinct limits
	limitBytes []byte

	lines interner // of Coalesce
	tails []*Group // of Coalesce: the last group of each line

	input   []byte   // the lines
	strings []string // what args point to
	args    []any
}

// NewEncoder returns an Encoder for groups whose hashes have this seed.
func NewEncoder(seed maphash.Seed) *Encoder { return &Encoder{seed: seed} }

// Encode replaces what the encoder holds. Each of the lines is a group with the
// equal ones that Coalesce has linked to it.
func (e *Encoder) Encode(lines []*Group) {
	e.reset()
	for _, g := range lines {
		mode := g.Mode
		if mode == Take && g.hasRoles() {
			mode = takeByRole
		}
		e.input = appendNumbers(e.input, int64(mode), count(g), int64(len(g.Hits)))
		for i := range g.Hits {
			h := &g.Hits[i]
			e.input = appendNumbers(e.input, e.key(h.Key), e.limit(h.Limit), h.Cost)
			switch mode {
			case GiveBack:
				e.input = appendNumbers(e.input, g.Decisions[i].At)
			case takeByRole:
				e.input = appendNumbers(e.input, int64(h.Role))
			}
		}
	}
}

func (e *Encoder) reset() {
	e.keys.reset()
	e.keyBytes, e.keyEnds = e.keyBytes[:0], e.keyEnds[:0]
	e.limits.reset()
	clear(e.limitList)
	e.limitList, e.limitBytes = e.limitList[:0], e.limitBytes[:0]
	e.input = e.input[:0]
}

// count returns how many groups share the line that begins with g.
func count(g *Group) (n int64) {
	for ; g != nil; g = g.Same {
		n++
	}
	return n
}

// key returns the index of a key in KEYS, from 1 on.
func (e *Encoder) key(key []byte) int64 {
	i, isNew := e.keys.find(maphash.Bytes(e.seed, key), func(i int) bool { return string(e.keyAt(i)) == string(key) })
	if isNew {
		e.keyBytes = append(e.keyBytes, key...)
		e.keyEnds = append(e.keyEnds, len(e.keyBytes))
	}
	return int64(i) + 1
}

func (e *Encoder) keyAt(i int) []byte {
	start := 0
	if i > 0 {
		start = e.keyEnds[i-1]
	}
	return e.keyBytes[start:e.keyEnds[i]]
}

// limit returns the index of a limit in the script's second argument, from 1
// on.
func (e *Encoder) limit(l *bucket.Limit) int64 {
	i, isNew := e.limits.find(maphash.Comparable(e.seed, l), func(i int) bool { return e.limitList[i] == l })
	if isNew {
		e.limitList = append(e.limitList, l)
		e.limitBytes = appendLimit(e.limitBytes, l)
	}
	return int64(i) + 1
}

// Command returns the arguments of the EVALSHA that decides what was encoded.
// They are valid until the encoder is used again. skew is how far ahead of the
// clock a state's last moment may lie, in microseconds. clock is empty, or in
// tests the script's clock in microseconds since the Unix epoch.
func (e *Encoder) Command(skew, clock string) []any {
	// The client writes a *string without the allocation that a string or a
	// []byte in an interface costs. So all arguments are slices of one text: one
	// allocation instead of 24 for 20 keys, in the same time.
	limits := len(e.keyBytes)
	e.keyBytes = append(append(e.keyBytes, e.limitBytes...), e.input...)
	text := string(e.keyBytes)
	e.keyBytes = e.keyBytes[:limits]

	e.strings = e.strings[:0]
	start := 0
	for _, end := range e.keyEnds {
		e.strings = append(e.strings, text[start:end])
		start = end
	}
	e.strings = append(e.strings, skew, text[limits:limits+len(e.limitBytes)], text[limits+len(e.limitBytes):])
	if clock != "" {
		e.strings = append(e.strings, clock)
	}

	e.args = append(e.args[:0], "evalsha", &SHA, len(e.keyEnds))
	for i := range e.strings {
		e.args = append(e.args, &e.strings[i])
	}
	return e.args
}
