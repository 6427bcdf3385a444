package record

import (
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// count is how much there was in a second: the second, modulo 2^32, in its upper half,
// and how much in its lower half.
type count struct{ atomic.Uint64 }

// add adds n, unless there would then be more than max, below 2^32, in the second of now,
// in microseconds. One second back, the count goes on: a request that read the clock
// before the turn of a second may come after one that read it later. Further back, the
// clock was set.
func (c *count) add(now int64, n, max uint64) bool {
	at := now / 1e6
	for {
		was := c.Load()
		second, sum := int64(was>>32), was&(1<<32-1)
		// Only the lower bits of the difference are known.
		if later := int32(at - second); later > 0 || later < -1 {
			second, sum = at, 0
		}
		if sum+n > max {
			return false
		}
		if c.CompareAndSwap(was, uint64(second)<<32|(sum+n)) {
			return true
		}
	}
}

// subjects bound the lines for one subject in a second. The memory for that has one
// size, whatever callers ask: a subject has a place by its hash, and shares it with
// others that have the same. So some of their lines may be left out too early, but too
// many are never let through.
type subjects struct {
	max    uint64
	seed   maphash.Seed
	places []count
}

// subjectPlaces take 512 KiB.
const subjectPlaces = 1 << 16

// newSubjects returns bounds of maxLines lines a second, or nil for none.
func newSubjects(maxLines int) *subjects {
	if maxLines == 0 {
		return nil
	}
	return &subjects{max: uint64(maxLines), seed: maphash.MakeSeed(), places: make([]count, subjectPlaces)}
}

// admit reports whether there may be a line for a request at now, in microseconds.
func (s *subjects) admit(now int64, q *Request) bool {
	return s == nil || s.places[s.hash(q)%subjectPlaces].add(now, 1, s.max)
}

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
	max   uint64 // 0 is no bound
	bytes count
}

// admit reports whether there may be this many more bytes at now.
func (r *rate) admit(now int64, bytes int) bool {
	return r.max == 0 || r.bytes.add(now, uint64(bytes), r.max)
}
