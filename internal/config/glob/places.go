package glob

import "math/bits"

// valuePlaces tells where in a value the texts between the stars of patterns can stand.
// It is filled in one pass over the value, and then rules out most patterns that do not
// match without a search of their own.
type valuePlaces struct {
	// first and last tell where the first and the last gram of a hash ends, as the number
	// of bytes up to there; 0 if there is none. A collision makes first too small or last
	// too large, which costs a search.
	first, last [placeSlots]uint16
}

const (
	// placeSlots is how many hashes are told apart: four for each byte of the longest
	// value.
	placeSlots = 1 << placeBits
	placeBits  = 13
)

func placeSlot(g gram) uint16 { return uint16(g.hash() * 0x9e3779b97f4a7c15 >> (64 - placeBits)) }

// fill notes the grams of a value of at most MaxSearchedValue bytes, for each size whose
// bit is set.
func (v *valuePlaces) fill(value string, sizes uint) {
	*v = valuePlaces{}
	var last uint64
	for i := range len(value) {
		last = last<<8 | uint64(value[i])
		for rest := sizes; rest != 0; rest &= rest - 1 {
			size := bits.TrailingZeros(rest)
			if size > i+1 {
				break
			}
			slot := placeSlot(lastGram(last, size))
			if v.first[slot] == 0 {
				v.first[slot] = uint16(i + 1)
			}
			v.last[slot] = uint16(i + 1)
		}
	}
}

// allow reports whether all texts between stars may occur in the value in this order,
// after so many bytes.
func (v *valuePlaces) allow(middle []innerText, after int) bool {
	for i := range middle {
		m := &middle[i]
		after += len(m.text)
		if int(v.last[m.slot]) < after {
			return false
		}
		after = max(after, int(v.first[m.slot]))
	}
	return true
}
