package top

import (
	"bytes"
	"hash/maphash"
	"math"
	"math/bits"
)

// Sketch is a summary to which counts are added: Space-Saving with a bound in bytes
// instead of a number of counters. Its methods must not be called concurrently.
//
// The counters are a heap with the smallest count on top. A subject without a counter
// replaces the smallest, or several if it is longer. The largest count ever dropped is
// the floor: no subject without a counter had more, so it is where a new counter starts,
// and its error.
type Sketch struct {
	budget *Budget
	limit  func() int64
	seed   maphash.Seed // so that no caller can choose subjects that are slow to find

	counters []counter
	heap     []ranked
	index    []int32 // 1 + positions in counters, by hash, with linear probing; a power of two
	floor    uint64
	total    uint64
	bytes    int64 // taken from budget
}

// counter is what is known of a subject.
type counter struct {
	error uint64
	text  []byte
	hash  uint32
	place int32 // position of its count in heap
}

// ranked is the count of a counter. Counts are stored together, since they are compared
// all the time.
type ranked struct {
	count uint64
	at    int32 // in counters
}

const (
	sizeOfCounter = 40 + 16 // and its count
	sizeOfIndex   = 4
	fewCounters   = 8
	// textStep is the step in which text buffers grow, so that most can be reused for
	// another text.
	textStep = 16
)

// NewSketch returns a sketch that takes at most limit() bytes, from a budget.
func NewSketch(budget *Budget, limit func() int64) *Sketch {
	return &Sketch{budget: budget, limit: limit, seed: maphash.MakeSeed()}
}

// Add adds n to the count of the subject with a text.
func (s *Sketch) Add(text []byte, n uint64) {
	s.total = plus(s.total, n)
	hash := uint32(maphash.Bytes(s.seed, text))
	if at := s.find(hash, text); at >= 0 {
		place := int(s.counters[at].place)
		s.heap[place].count = plus(s.heap[place].count, n)
		s.down(place)
		return
	}
	s.insert(hash, text, n)
}

// plus is the sum, or the largest number.
func plus(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// find returns the position of the counter of a text, or -1.
func (s *Sketch) find(hash uint32, text []byte) int {
	if len(s.index) == 0 {
		return -1
	}
	mask := uint32(len(s.index) - 1)
	for i := hash & mask; s.index[i] != 0; i = (i + 1) & mask {
		at := int(s.index[i] - 1)
		if c := &s.counters[at]; c.hash == hash && bytes.Equal(c.text, text) {
			return at
		}
	}
	return -1
}

// insert makes room for a counter of a text that has none, and counts.
func (s *Sketch) insert(hash uint32, text []byte, n uint64) {
	limit := s.limit()
	for {
		if s.grow(len(text), limit) {
			break
		}
		if len(s.heap) == 0 { // there is no room for any
			s.floor = plus(s.floor, n)
			return
		}
		s.floor = max(s.floor, s.heap[0].count)
		if at := int(s.heap[0].at); cap(s.counters[at].text) >= len(text) && s.bytes <= limit {
			s.replace(at, hash, text)
			s.heap[0].count = plus(s.floor, n)
			s.down(0)
			return
		}
		s.removeLeast()
	}
	buffer := make([]byte, 0, roundUp(len(text), textStep))
	at := len(s.counters)
	s.counters = append(s.counters, counter{hash: hash, error: s.floor, text: append(buffer, text...)})
	s.addIndex(at)
	s.heap = append(s.heap, ranked{plus(s.floor, n), int32(at)})
	s.up(at)
}

// replace gives a counter to another text that fits in its buffer.
func (s *Sketch) replace(at int, hash uint32, text []byte) {
	s.unindex(at)
	c := &s.counters[at]
	c.hash, c.text, c.error = hash, append(c.text[:0], text...), s.floor
	s.addIndex(at)
}

func roundUp(n, step int) int { return (n + step - 1) / step * step }

// grow takes the bytes of one more counter, with a text of the given length, and reports
// whether there were enough.
func (s *Sketch) grow(length int, limit int64) bool {
	need := int64(roundUp(length, textStep))
	size := cap(s.counters)
	if len(s.counters) == size {
		size = max(fewCounters, size+size/4)
		need += bytesOf(size) - bytesOf(cap(s.counters))
	}
	if s.bytes+need > limit || !s.budget.take(need) {
		return false
	}
	s.bytes += need
	if size > cap(s.counters) {
		s.counters = append(make([]counter, 0, size), s.counters...)
		s.heap = append(make([]ranked, 0, size), s.heap...)
		if n := indexSize(size); n > len(s.index) {
			s.index = make([]int32, n)
			for at := range s.counters {
				s.addIndex(at)
			}
		}
	}
	return true
}

// bytesOf is what room for so many counters takes, without their texts.
func bytesOf(counters int) int64 {
	return int64(counters*sizeOfCounter + indexSize(counters)*sizeOfIndex)
}

// indexSize is a power of two large enough that a third or more of the slots are empty.
func indexSize(counters int) int {
	if counters == 0 {
		return 0
	}
	return 1 << bits.Len(uint(counters+counters/2))
}

// removeLeast removes the counter on top of the heap.
func (s *Sketch) removeLeast() {
	at, last := int(s.heap[0].at), len(s.counters)-1
	s.unindex(at)
	freed := int64(cap(s.counters[at].text))
	s.bytes -= freed
	s.budget.give(freed)
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	if last > 0 {
		s.down(0)
	}
	if at != last { // the last counter moves to the free slot
		s.unindex(last)
		s.counters[at] = s.counters[last]
		s.heap[s.counters[at].place].at = int32(at)
		s.addIndex(at)
	}
	s.counters[last] = counter{}
	s.counters = s.counters[:last]
}

// addIndex adds a counter to the index.
func (s *Sketch) addIndex(at int) {
	mask := uint32(len(s.index) - 1)
	i := s.counters[at].hash & mask
	for s.index[i] != 0 {
		i = (i + 1) & mask
	}
	s.index[i] = int32(at + 1)
}

// unindex removes a counter from the index, and closes the gap.
func (s *Sketch) unindex(at int) {
	mask := uint32(len(s.index) - 1)
	gap := s.counters[at].hash & mask
	for s.index[gap] != int32(at+1) {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; s.index[i] != 0; i = (i + 1) & mask {
		// It may move back unless its own slot is between the gap and its current one.
		home := s.counters[s.index[i]-1].hash & mask
		if (i-home)&mask >= (i-gap)&mask {
			s.index[gap] = s.index[i]
			gap = i
		}
	}
	s.index[gap] = 0
}

// put puts a count at a position of the heap.
func (s *Sketch) put(place int, r ranked) {
	s.heap[place] = r
	s.counters[r.at].place = int32(place)
}

// up moves a count up that may be smaller than those above it.
func (s *Sketch) up(place int) {
	moved := s.heap[place]
	for place > 0 {
		above := (place - 1) / 2
		if s.heap[above].count <= moved.count {
			break
		}
		s.put(place, s.heap[above])
		place = above
	}
	s.put(place, moved)
}

// down moves a count down that may be larger than those below it.
func (s *Sketch) down(place int) {
	moved := s.heap[place]
	for {
		least := 2*place + 1
		if least >= len(s.heap) {
			break
		}
		if right := least + 1; right < len(s.heap) && s.heap[right].count < s.heap[least].count {
			least = right
		}
		if moved.count <= s.heap[least].count {
			break
		}
		s.put(place, s.heap[least])
		place = least
	}
	s.put(place, moved)
}

// Total returns the sum of everything added.
func (s *Sketch) Total() uint64 { return s.total }

// Summary returns what is known.
func (s *Sketch) Summary() Summary {
	counts := make([]Count, len(s.heap))
	for i, r := range s.heap {
		c := &s.counters[r.at]
		counts[i] = Count{Subject: string(c.text), Count: r.count, Error: c.error}
	}
	sortCounts(counts)
	return Summary{Counts: counts, Floor: s.floor, Total: s.total}
}

// Reset drops everything, and gives all bytes back.
func (s *Sketch) Reset() {
	s.budget.give(s.bytes)
	*s = Sketch{budget: s.budget, limit: s.limit, seed: s.seed}
}
