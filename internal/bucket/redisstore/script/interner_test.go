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
