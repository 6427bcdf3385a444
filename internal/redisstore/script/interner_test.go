package script

import "testing"

// Things are numbered in their order, however many there are and whatever their hashes
// are.
func TestInternerNumbersThingsInTheirOrder(t *testing.T) {
	var in interner
	for _, n := range []int{0, 1, 1000, 3, 3, 3, 3, 50} {
		in.reset()
		for round := range 2 {
			for i := range n {
				hash := uint64(i) % 7 << 40 // all in one slot
				got, isNew := in.find(hash, func(j int) bool { return j == i })
				if got != i || isNew != (round == 0) {
					t.Fatalf("thing %d of %d is %d, new %v, in round %d", i, n, got, isNew, round)
				}
			}
		}
	}
}

// After a large use, clearing the table must not stay as expensive for ever.
func TestInternerShrinksToItsUse(t *testing.T) {
	var in interner
	fill := func(n int) {
		in.reset()
		for i := range n {
			in.find(uint64(i), func(j int) bool { return j == i })
		}
	}
	fill(10_000)
	large := len(in.slots)
	for range 20 {
		fill(3)
	}
	if large < 20_000 || len(in.slots) != minSlots {
		t.Errorf("%d slots for 10,000 things, and later %d for 3, want %d", large, len(in.slots), minSlots)
	}
	fill(1000)
	if n := in.n; n != 1000 {
		t.Errorf("%d things of 1000 after it shrank", n)
	}
}
