package bucket

import (
	"unsafe"
)

// State is what a limit remembers about one key. The zero State remembers
// nothing: a full bucket, an empty window. It belongs to one algorithm; a
// limit's numbers may change under it.
type State struct {
	// Last is the moment of the last write. Whatever the clock says, only Mend
	// goes back to an earlier moment.
	Last int64
	// Expires is the moment from which the state counts as the zero State, under
	// the numbers of the last write. That of a concurrency counts nothing any more for
	// a hold before.
	Expires int64
	// Level is a bucket's debt in units of 1/Unit token, the count of a fixed
	// window, the sum of the counts of Spans, or how many of Holders had a slot right
	// after the last write.
	Level int64
	// Unit is how many units of Level make a token of a bucket.
	Unit int64
	// Spans are the slots of a sliding window or the stamps of a log, the oldest
	// first: from one to the next, neither First nor Last decreases.
	Spans []Span
	// Holders are those of a concurrency, or nil.
	Holders *Holders
	// Pause is the last pause of the key; the zero Pause if a cost was charged since it
	// ended.
	Pause Pause
}

// Span is a slot of a sliding window: Count was admitted from First to Last.
// A stamp of a sliding log has both equal.
type Span struct {
	First, Last int64
	Count       int64
}

// JoinNewest makes one span of the two newest; there must be two. The hits of
// both count until the later one ends. A store that has no room for another span calls
// it: the limit then errs on the safe side, as a sliding_window with longer slots does.
func (s *State) JoinNewest() {
	n := len(s.Spans)
	joined := &s.Spans[n-2]
	joined.Last = s.Spans[n-1].Last
	joined.Count += s.Spans[n-1].Count
	s.Spans = s.Spans[:n-1]
}

// Bytes returns about how many bytes the state takes besides the struct.
func (s *State) Bytes() int64 {
	return int64(cap(s.Spans))*int64(unsafe.Sizeof(Span{})) + s.Holders.bytes()
}

// Growth returns by at most how many bytes the state grows if a holder of this name
// takes a slot, once so many others have that are pending.
func (s *State) Growth(holder string, pending int64) int64 {
	return s.Holders.growth(holder, int(pending))
}

// clear makes a zero State that keeps the pause, and the memory of Spans.
func (s *State) clear() { *s = State{Spans: s.Spans[:0], Pause: s.Pause} }

// Held returns who holds when the store's clock is at clock: the first n of them, or if
// holder is not empty this one alone.
func (s *State) Held(clock int64, holder string, n int) Held {
	now := holdersNow(s, clock)
	held := Held{Total: s.Holders.count(now)}
	if held.Total == 0 {
		return held
	}
	if holder != "" {
		if s.holds(holder, now) {
			h := s.Holders.byEnd[s.Holders.find(holder)]
			held.First = []Holding{{h.holder, micros(h.end - now)}}
		}
		return held
	}
	first := s.Holders.byEnd[s.Holders.firstAfter(now):]
	for _, h := range first[:min(n, len(first))] {
		held.First = append(held.First, Holding{Holder: h.holder, Left: micros(h.end - now)})
	}
	return held
}

// holdersNow returns the key's now: a moment later than all its writes.
func holdersNow(s *State, clock int64) int64 {
	if clock >= s.Expires {
		return clock
	}
	return max(clock, s.Last+1)
}

// holds reports whether a holder has a slot at now.
func (s *State) holds(holder string, now int64) bool {
	i := s.Holders.find(holder)
	return i >= 0 && s.Holders.byEnd[i].end > now
}

// heldFor returns how long after the last write someone holds if all is left alone.
func (s *State) heldFor() int64 {
	if s.Level == 0 {
		return 0
	}
	return s.Holders.lastEnd() - s.Last
}

// keepHolders sets until when the state is kept: until no one who has lapsed is
// remembered.
func (s *State) keepHolders(hold int64) {
	s.Expires = s.Last + 1
	if s.Holders != nil {
		s.Expires = max(s.Expires, s.Holders.lastEnd()+hold)
	}
}
