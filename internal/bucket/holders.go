package bucket

import (
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Holders are those who hold a slot of a concurrency, or have lapsed not long ago, each
// with the moment at which its hold ends. nil holds no one.
type Holders struct {
	byEnd []holding // the first to end first
	// ends has the end of each, if there were more than fewHolders; otherwise nil.
	ends map[string]int64
	// text is how many bytes the names take.
	text int64
}

type holding struct {
	end    int64
	holder string
}

// Held are those who hold slots of one state.
type Held struct {
	// First are those whose holds end first, the first to end first, or one who was asked
	// for.
	First []Holding
	// Total is how many hold.
	Total int64
}

// Holding is who has a slot, and how long if it is not heard of any more.
type Holding struct {
	Holder string
	Left   time.Duration
}

// fewHolders is the most holders that are searched rather than looked up in a map.
const fewHolders = 8

// count returns how many holders end after the moment at.
func (s *Holders) count(at int64) int64 {
	if s == nil {
		return 0
	}
	return int64(len(s.byEnd) - s.firstAfter(at))
}

// firstAfter returns the index of the first holder that ends after the moment at.
func (s *Holders) firstAfter(at int64) int {
	i, _ := slices.BinarySearchFunc(s.byEnd, at, func(h holding, at int64) int {
		if h.end <= at {
			return -1
		}
		return 1
	})
	return i
}

// find returns the index of a holder, or -1.
func (s *Holders) find(holder string) int {
	if s == nil {
		return -1
	}
	first := 0
	if s.ends != nil {
		end, ok := s.ends[holder]
		if !ok {
			return -1
		}
		first = s.firstAfter(end - 1)
	}
	i := slices.IndexFunc(s.byEnd[first:], func(h holding) bool { return h.holder == holder })
	if i < 0 {
		return -1
	}
	return first + i
}

func (s *Holders) isEmpty() bool { return s == nil || len(s.byEnd) == 0 }

// lastEnd returns the end of the holder that ends last, or 0 if there is none.
func (s *Holders) lastEnd() int64 {
	if s.isEmpty() {
		return 0
	}
	return s.byEnd[len(s.byEnd)-1].end
}

// endAfter returns when the hold of the n-th holder, from 0 on, of those that end after
// the moment at ends, or 0 if there are not so many.
func (s *Holders) endAfter(at, n int64) int64 {
	if s == nil {
		return 0
	}
	if i := s.firstAfter(at) + int(n); i < len(s.byEnd) {
		return s.byEnd[i].end
	}
	return 0
}

// renewal says how a holder with a slot renews it at now.
func (s *Holders) renewal(holder string, now, hold int64) Renewal {
	if heard := s.byEnd[s.find(holder)].end - hold; now-heard < hold/soonPart {
		return RenewedSoon
	}
	return Renewed
}

// released returns what a release by a holder finds at now.
func (s *Holders) released(holder string, now, hold int64) Released {
	i := s.find(holder)
	switch {
	case i < 0:
		return ReleasedNothing
	case s.byEnd[i].end > now:
		return ReleasedSlot
	case s.byEnd[i].end > now-hold:
		return ReleasedTooLate
	}
	return ReleasedNothing
}

// put sets a holder's end, whether it held before or not.
func (s *Holders) put(holder string, end int64) {
	if i := s.find(holder); i >= 0 {
		holder = s.byEnd[i].holder
		s.byEnd = slices.Delete(s.byEnd, i, i+1)
	} else {
		holder = strings.Clone(holder)
		s.text += textBytes(holder)
	}
	if n := len(s.byEnd); n == cap(s.byEnd) {
		s.byEnd = append(make([]holding, 0, roomFor(n)), s.byEnd...)
	}
	s.byEnd = slices.Insert(s.byEnd, s.firstAfter(end), holding{end, holder})
	switch {
	case s.ends != nil:
		s.ends[holder] = end
	case len(s.byEnd) > fewHolders:
		s.index()
	}
}

// index makes the map of ends.
func (s *Holders) index() {
	s.ends = make(map[string]int64, len(s.byEnd))
	for _, h := range s.byEnd {
		s.ends[h.holder] = h.end
	}
}

// remove removes n holders from the index i on.
func (s *Holders) remove(i, n int) {
	for _, h := range s.byEnd[i : i+n] {
		s.text -= textBytes(h.holder)
		delete(s.ends, h.holder)
	}
	s.byEnd = slices.Delete(s.byEnd, i, i+n)
	if left := len(s.byEnd); left < cap(s.byEnd)/4 {
		// Neither a slice nor a map shrinks by itself.
		s.byEnd = append(make([]holding, 0, roomFor(left)), s.byEnd...)
		if s.ends = nil; left > fewHolders {
			s.index()
		}
	}
}

// drop removes at most n of those who end at the moment at or before.
func (s *Holders) drop(at int64, n int) { s.remove(0, min(s.firstAfter(at), n)) }

// cut removes those who ended at the moment at or before, and makes the other holds end
// at the moment latest at the latest.
func (s *Holders) cut(at, latest int64) {
	s.remove(0, s.firstAfter(at))
	for i := range s.byEnd {
		h := &s.byEnd[i]
		h.end = min(h.end, latest)
		if s.ends != nil {
			s.ends[h.holder] = h.end
		}
	}
}

// roomFor returns how many holders to make room for when there are n.
func roomFor(n int) int { return n + n/4 + 2 }

// bytes returns about how many bytes the holders take.
func (s *Holders) bytes() int64 {
	if s == nil {
		return 0
	}
	n := int64(unsafe.Sizeof(*s)) + int64(cap(s.byEnd))*int64(unsafe.Sizeof(holding{})) + s.text
	if s.ends != nil {
		n += int64(cap(s.byEnd)) * mappedBytes
	}
	return n
}

// growth returns by at most how many bytes the holders grow if they are to have one of
// this name, once they have so many more that are pending.
func (s *Holders) growth(holder string, pending int) int64 {
	if s == nil {
		n := new(Holders).growth(holder, pending)
		if pending == 0 {
			n += int64(unsafe.Sizeof(Holders{}))
		}
		return n
	}
	if s.find(holder) >= 0 {
		return 0
	}
	count, room := len(s.byEnd)+pending, cap(s.byEnd)
	for room < count {
		room = roomFor(room)
	}
	isMapped := s.ends != nil || count > fewHolders
	n := textBytes(holder)
	if room == count {
		each := int64(unsafe.Sizeof(holding{}))
		if isMapped {
			each += mappedBytes
		}
		n += int64(roomFor(room)-room) * each
		room = roomFor(room)
	}
	if !isMapped && count == fewHolders {
		n += int64(room) * mappedBytes
	}
	return n
}

// mappedBytes is about the most that a holder takes in the map of ends: if holders come
// and go, the map grows to twice the room that it needs.
const mappedBytes = 72

// textBytes returns how many bytes the runtime takes for a short text.
func textBytes(s string) int64 { return int64(len(s)+15) &^ 15 }
