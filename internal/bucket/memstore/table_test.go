package memstore

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// A table finds what a map finds, also of keys whose hashes are the same, which through
// the store no one would live to see.
func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var (
			got     table
			want    = map[string]*item{}
			keys    = 1 + r.IntN(300)
			hashes  = 1 + r.Uint64N(400) // few or many have the same
			spread  = r.IntN(31)         // and few or many the same first slot
			hashOf  = func(key int) uint64 { return uint64(key) * 7919 % hashes << (32 + spread) }
			removes = r.IntN(3)
		)
		for range 2000 {
			key := r.IntN(keys)
			text, hash := strconv.Itoa(key), hashOf(key)
			switch e := want[text]; {
			case r.IntN(200) == 0:
				got.shrink()
			case e == nil:
				want[text] = &item{key: text}
				got.add(want[text], hash)
			case r.IntN(3) < removes:
				delete(want, text)
				got.remove(e, hash)
			}
			if looked := r.IntN(keys); got.find(hashOf(looked), strconv.Itoa(looked)) != want[strconv.Itoa(looked)] {
				t.Fatalf("seed %d: key %d is not found, or found though it is gone", seed, looked)
			}
			if got.len != len(want) || 4*got.len > 3*len(got.slots) {
				t.Fatalf("seed %d: %d items in %d slots, of %d", seed, got.len, len(got.slots), len(want))
			}
		}
		for text, e := range want {
			key, _ := strconv.Atoi(text)
			got.remove(e, hashOf(key))
		}
		if got.shrink(); got.len != 0 || got.slots != nil {
			t.Fatalf("seed %d: an empty table has %d items and %d slots", seed, got.len, len(got.slots))
		}
	}
}
