package record

import (
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// subjects bound the lines for one subject in a second. The memory for that has one
// size, whatever callers ask: a subject has a place by its hash, and shares it with
// others that have the same. So some of their lines may be left out too early, but too
// many are never let through.
type subjects struct {
	max  uint64
	seed maphash.Seed
	// places have the second, modulo 2^32, in their upper half, and how many lines
	// there were in it.
	places []atomic.Uint64
}

// subjectPlaces take 512 KiB.
const subjectPlaces = 1 << 16

// newSubjects returns bounds of maxLines lines a second, or nil for none.
func newSubjects(maxLines int) *subjects {
	if maxLines == 0 {
		return nil
	}
	return &subjects{max: uint64(maxLines), seed: maphash.MakeSeed(), places: make([]atomic.Uint64, subjectPlaces)}
}

// admit reports whether there may be a line for a request at now, in microseconds.
func (s *subjects) admit(now int64, q *Request) bool {
	if s == nil {
		return true
	}
	place := &s.places[s.hash(q)%subjectPlaces]
	at := now / 1e6
	for {
		was := place.Load()
		second, lines := int64(was>>32), was&(1<<32-1)
		// Only the lower bits of the difference are known.
		if isNext(int64(int32(at - second))) {
			second, lines = at, 0
		}
		if lines >= s.max {
			return false
		}
		if place.CompareAndSwap(was, uint64(second)<<32|lines+1) {
			return true
		}
	}
}

// isNext reports whether a count begins again for a moment this many seconds after those
// that it counts. One second back, it goes on: a request that read the clock before
// the turn of a second may come after one that read it later. Further back, the clock was set.
func isNext(seconds int64) bool { return seconds > 0 || seconds < -1 }

// hash returns the hash of the request's subject. That of a denied request is the
// descriptor that denied it, so that it does not matter what else the caller sends; that
// of any other is all that it asks about.
func (s *subjects) hash(q *Request) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	write(&h, q.Domain)
	list := q.Call.Descriptors
	if by := denier(q); by < len(list) {
		list = list[by : by+1]
	}
	for i := range list {
		writeEntries(&h, list[i].Entries)
	}
	return h.Sum64()
}

func writeEntries(h *maphash.Hash, entries []bucket.Entry) {
	h.WriteByte(byte(len(entries)))
	for i := range entries {
		write(h, entries[i].Key)
		write(h, entries[i].Value)
	}
}

// write writes a text so that no two texts look alike together.
func write(h *maphash.Hash, text string) {
	h.WriteString(text)
	h.WriteByte(0xff)
}

// denier returns the index of the descriptor that a denied request waits for, or the
// number of descriptors of any other.
func denier(q *Request) int {
	if q.Code != codes.OK || !q.Denied {
		return len(q.Outcomes)
	}
	i, _, _ := q.Denier()
	return i
}

// rate bounds the bytes of a second: however many subjects an attacker makes up, the
// log does not grow faster.
type rate struct {
	max    int64 // 0 is no bound
	second atomic.Int64
	bytes  atomic.Int64
}

// isSpent reports whether there may be no more bytes at now, before a line is made.
func (r *rate) isSpent(now int64) bool {
	return r.max > 0 && r.bytes.Load() >= r.max && !isNext(now/1e6-r.second.Load())
}

// admit reports whether there may be this many more bytes at now. At the turn of a second
// a few more lines may pass.
func (r *rate) admit(now, bytes int64) bool {
	if r.max == 0 {
		return true
	}
	second := now / 1e6
	if was := r.second.Load(); isNext(second-was) && r.second.CompareAndSwap(was, second) {
		r.bytes.Store(0)
	}
	if r.bytes.Add(bytes) > r.max {
		r.bytes.Add(-bytes)
		return false
	}
	return true
}
