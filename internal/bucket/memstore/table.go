package memstore

// table finds items by their keys; its zero value is empty. A Go map would hash each key a
// second time, since a hash has chosen the shard before, and goes through more memory that
// is not cached: with it BenchmarkTake needs 9 % more time.
//
// It has open addresses with linear probing (Knuth, The Art of Computer Programming,
// volume 3, section 6.4, algorithms L and R).
type table struct {
	slots []slot // a power of two, or none
	len   int
}

type slot struct {
	hash uint64 // of the item's key
	item *item  // nil: the slot is free
}

// leastSlots is the number of slots of a table that has some.
const leastSlots = 8

// first is the slot of an item with this hash if no other item is there. The low bits of
// the hash have chosen the shard.
func (t *table) first(hash uint64) int { return int(hash>>32) & (len(t.slots) - 1) }

// after is the slot after slot i.
func (t *table) after(i int) int { return (i + 1) & (len(t.slots) - 1) }

// find returns the item of a key with this hash, or nil.
func (t *table) find(hash uint64, key string) *item {
	if t.len == 0 {
		return nil
	}
	for i := t.first(hash); t.slots[i].item != nil; i = t.after(i) {
		if s := &t.slots[i]; s.hash == hash && s.item.key == key {
			return s.item
		}
	}
	return nil
}

// add adds an item whose key has this hash and is of no other item.
func (t *table) add(e *item, hash uint64) {
	if t.len >= len(t.slots)/4*3 {
		t.resize(max(leastSlots, 2*len(t.slots)))
	}
	t.put(slot{hash, e})
	t.len++
}

func (t *table) put(s slot) {
	i := t.first(s.hash)
	for t.slots[i].item != nil {
		i = t.after(i)
	}
	t.slots[i] = s
}

// resize has n slots from now on, which is a power of two and more than there are items.
func (t *table) resize(n int) {
	old := t.slots
	t.slots = make([]slot, n)
	for _, s := range old {
		if s.item != nil {
			t.put(s)
		}
	}
}

// shrink frees slots that the items do not need.
func (t *table) shrink() {
	n := leastSlots
	for t.len > n/4*3 {
		n *= 2
	}
	if t.len == 0 {
		t.slots = nil
	} else {
		t.resize(n)
	}
}

// remove removes an item whose key has this hash, and moves those that stand after it
// because their slots were taken.
func (t *table) remove(e *item, hash uint64) {
	free := t.first(hash)
	for t.slots[free].item != e {
		free = t.after(free)
	}
	for i := t.after(free); t.slots[i].item != nil; i = t.after(i) {
		mask := len(t.slots) - 1
		if pushed := (i - t.first(t.slots[i].hash)) & mask; pushed >= (i-free)&mask {
			t.slots[free] = t.slots[i]
			free = i
		}
	}
	t.slots[free] = slot{}
	t.len--
}
