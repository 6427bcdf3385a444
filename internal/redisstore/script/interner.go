package script

// interner numbers distinct things 0, 1, 2 ... in the order in which they first come.
// It is a hash table with linear probing (Knuth, "The Art of Computer Programming",
// volume 3, 6.4); the caller keeps the things. If callers of the daemon choose the
// things, the hashes must be seeded. The zero interner is empty.
type interner struct {
	slots []slot // a power of two of them, at most half in use
	n     int
}

type slot struct {
	hash  uint64
	index int32 // the thing's number plus 1; 0 means that the slot is free
}

const minSlots = 64

// reset forgets all things and keeps the memory. Clearing it costs time, so after one
// large use the part in use shrinks by half each time.
func (t *interner) reset() {
	clear(t.slots)
	if 8*t.n < len(t.slots) && len(t.slots) > minSlots {
		t.slots = t.slots[:len(t.slots)/2]
	}
	t.n = 0
}

// find returns the number of a thing, and whether it is new. is reports whether
// the thing has number i.
func (t *interner) find(hash uint64, is func(i int) bool) (i int, isNew bool) {
	if 2*(t.n+1) > len(t.slots) {
		t.grow()
	}
	at := t.probe(hash, is)
	if s := t.slots[at]; s.index > 0 {
		return int(s.index) - 1, false
	}
	t.n++
	t.slots[at] = slot{hash, int32(t.n)}
	return t.n - 1, true
}

// probe returns the index of the thing's slot, or of the free slot for it.
func (t *interner) probe(hash uint64, is func(i int) bool) int {
	mask := len(t.slots) - 1
	at := int(hash) & mask
	for {
		s := t.slots[at]
		if s.index == 0 || s.hash == hash && is(int(s.index)-1) {
			return at
		}
		at = (at + 1) & mask
	}
}

func (t *interner) grow() {
	old := t.slots
	t.slots = make([]slot, max(minSlots, 2*len(old)))
	for _, s := range old {
		if s.index > 0 {
			t.slots[t.probe(s.hash, func(int) bool { return false })] = s
		}
	}
}
