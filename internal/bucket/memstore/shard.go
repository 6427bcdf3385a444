package memstore

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

const (
	// sweepEvery is how often the sweep in the background passes all shards.
	sweepEvery = time.Second
	// sweepChunk is how many keys it looks at before it lets go of a lock.
	sweepChunk = 512
	// evictSample is among how many keys the soonest to expire is sought.
	evictSample = 16
	// fewKeys is how many keys a shard may have had without a new index being
	// worth it when most of them are gone.
	fewKeys = 256

	spanBytes = int64(unsafe.Sizeof(bucket.Span{}))
	// leastSpans is for how many spans a state that has any has room from the
	// start, so that two can be joined.
	leastSpans = 2
)

// entry is what is kept for a key. It is guarded by its shard's lock.
type entry struct {
	key   string
	at    int // index in shard.entries
	state bucket.State
	bytes int64 // that it takes, as counted in Store.bytes
	// pinned entries belong to the group that is being decided and are
	// neither removed nor evicted meanwhile.
	pinned bool
}

// shard is a part of the keys. mu guards all of it.
type shard struct {
	mu      sync.Mutex
	index   map[string]*entry
	entries []*entry // the same, in no order, to walk and to draw from
	hand    int      // where the sweep goes on in entries
	most    int      // how many entries there were since index was made
	_       [64]byte // keeps the locks of two shards on different cache lines
}

func (sh *shard) add(e *entry) {
	e.at = len(sh.entries)
	sh.entries = append(sh.entries, e)
	sh.index[e.key] = e
	sh.most = max(sh.most, len(sh.entries))
}

// newEntry returns an entry for hit, pinned, with the bytes that it takes.
func newEntry(hit *bucket.Hit) *entry {
	e := &entry{key: string(hit.Key), bytes: bytesOf(hit), pinned: true}
	if hasSpans(hit.Limit) {
		e.state.Spans = make([]bucket.Span, 0, leastSpans)
	}
	return e
}

func hasSpans(l *bucket.Limit) bool {
	return l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.SlidingLog
}

// bytesOf is what a new entry for hit takes: itself, its key, and its places in
// the index, which has grown lately, and in entries.
func bytesOf(hit *bucket.Hit) int64 {
	const places = 72
	n := int64(unsafe.Sizeof(entry{})) + roundUp(len(hit.Key)) + places
	if hasSpans(hit.Limit) {
		n += leastSpans * spanBytes
	}
	return n
}

// roundUp is what the runtime takes for a short text.
func roundUp(n int) int64 { return int64(n+15) &^ 15 }

// drop forgets an entry, whose place goes to another.
func (sh *shard) drop(e *entry) {
	last := len(sh.entries) - 1
	moved := sh.entries[last]
	moved.at = e.at
	sh.entries[e.at] = moved
	sh.entries[last] = nil
	sh.entries = sh.entries[:last]
	delete(sh.index, e.key)
}

// remove forgets an entry and frees its room.
func (sh *shard) remove(s *Store, e *entry) {
	sh.drop(e)
	s.keys.Add(-1)
	s.bytes.Add(-e.bytes)
}

// sweep looks at the next n entries, removes those that have expired, and
// returns how many that were.
func (sh *shard) sweep(s *Store, n int, clock int64) (removed int) {
	for range min(n, len(sh.entries)) {
		if sh.hand >= len(sh.entries) {
			sh.hand = 0
		}
		e := sh.entries[sh.hand]
		if e.pinned || e.state.Expires > clock {
			sh.hand++
			continue
		}
		sh.remove(s, e) // and look at the one that took its index
		removed++
	}
	return removed
}

// soonest returns the entry that expires first of a small sample, or nil when
// all of the sample is pinned.
func (sh *shard) soonest() *entry {
	var found *entry
	n := len(sh.entries)
	if n == 0 {
		return nil
	}
	start := rand.IntN(n)
	for i := range min(evictSample, n) {
		e := sh.entries[(start+i)%n]
		if !e.pinned && (found == nil || e.state.Expires < found.state.Expires) {
			found = e
		}
	}
	return found
}

// sweepUntilStopped removes what has expired, shard after shard.
func (s *Store) sweepUntilStopped() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for i := range s.shards {
			s.shards[i].sweepAll(s)
		}
	}
}

// sweepAll looks at every key of the shard once, a chunk at a time.
func (sh *shard) sweepAll(s *Store) {
	for seen, all := 0, 1; seen < all; seen += sweepChunk {
		sh.mu.Lock()
		all = max(all, len(sh.entries))
		sh.sweep(s, sweepChunk, s.clock())
		sh.mu.Unlock()
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.entries) == 0 || sh.most > fewKeys && len(sh.entries) < sh.most/4 {
		sh.shrink()
	}
}

// shrink frees what the shard took for more keys than it has: neither a map nor
// a slice shrinks by itself.
func (sh *shard) shrink() {
	sh.entries = slices.Clone(sh.entries)
	sh.index = make(map[string]*entry, len(sh.entries))
	for _, e := range sh.entries {
		sh.index[e.key] = e
	}
	sh.most = len(sh.entries)
}
