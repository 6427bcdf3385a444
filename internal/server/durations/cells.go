package durations

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Native buckets are those of schema 3: each ends at 2^(1/8) times where the one
// before ends. Those from firstNative to lastNative are told apart; what is below is
// in the zero bucket, and what is above in the last.
const (
	schema = 3
	// firstNative is the bucket that ends just above 2^-20 s, about 1 us.
	firstNative = -20<<schema + 1
	// lastNative ends at 2^10 s. No request takes as long.
	lastNative = 10 << schema
	// zeroThreshold is where the zero bucket ends, in seconds.
	zeroThreshold = 1. / (1 << 20)
)

// classic are the ends of the classic buckets.
var classic = [...]time.Duration{
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// classicSeconds are these ends in seconds, and the end of all.
var classicSeconds = makeClassicSeconds()

func makeClassicSeconds() (ends [len(classic) + 1]float64) {
	for i, end := range classic {
		ends[i] = end.Seconds()
	}
	ends[len(classic)] = math.Inf(1)
	return ends
}

// cell is what lies between two neighbours among the ends of all buckets, native and
// classic. So it is in one bucket of each kind, and one count is enough for both.
type cell struct {
	end int64 // in nanoseconds, inclusive
	// native is its native bucket; that before firstNative is the zero bucket.
	native int
	// classic is the index of its classic bucket; len(classic) is beyond all.
	classic int
}

// maxCells bounds the cells: the zero bucket, all native ones, and one more for each
// end of a classic bucket.
const maxCells = 1 + lastNative - firstNative + 1 + len(classic)

// cells are sorted by their ends.
var cells = makeCells()

func makeCells() []cell {
	var all []cell
	for i := firstNative - 1; i <= lastNative; i++ {
		all = append(all, cell{end: int64(math.Floor(math.Exp2(float64(i)/(1<<schema)) * float64(time.Second)))})
	}
	natives := slices.Clone(all)
	for _, end := range classic {
		all = append(all, cell{end: int64(end)})
	}
	byEnd := func(a, b cell) int { return cmp.Compare(a.end, b.end) }
	slices.SortFunc(all, byEnd)
	all = slices.CompactFunc(all, func(a, b cell) bool { return a.end == b.end })
	for i := range all {
		n, _ := slices.BinarySearchFunc(natives, all[i], byEnd)
		all[i].native = firstNative - 1 + n
		all[i].classic, _ = slices.BinarySearch(classic[:], time.Duration(all[i].end))
	}
	return all
}

// A stretch is the durations that have the same length in bits and the same four bits
// after the first. It is at most 1/16 wide, so that it has few ends of cells in it.
const stretchBits = 4

// firstCells has the first cell of each stretch.
var firstCells = makeFirstCells()

func makeFirstCells() (first [64 << stretchBits]uint16) {
	last := stretchOf(cells[len(cells)-1].end)
	for i := range last + 1 {
		length, after := i>>stretchBits, int64(i&(1<<stretchBits-1))
		if length <= stretchBits {
			continue // shorter than all cells but the first
		}
		begin := (1<<stretchBits | after) << (length - stretchBits - 1)
		at, _ := slices.BinarySearchFunc(cells, begin, func(c cell, ns int64) int { return cmp.Compare(c.end, ns) })
		first[i] = uint16(at)
	}
	return first
}

// stretchOf returns the stretch of a number of at least 1<<stretchBits.
func stretchOf(ns int64) int {
	length := bits.Len64(uint64(ns))
	return length<<stretchBits | int(ns>>(length-stretchBits-1))&(1<<stretchBits-1)
}

// cellOf returns the cell of a duration.
func cellOf(took time.Duration) int {
	if took <= time.Duration(cells[0].end) {
		return 0
	}
	ns := min(int64(took), cells[len(cells)-1].end)
	at := int(firstCells[stretchOf(ns)])
	for cells[at].end < ns {
		at++
	}
	return at
}
