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
	// sweepEvery is how often the background sweep passes over all shards.
	sweepEvery = time.Second
	// sweepChunk is how many keys the sweep looks at before it unlocks a shard.
	sweepChunk = 512
	// evictSample is the number of keys of which the soonest to expire is evicted.
	evictSample = 16
	// fewKeys is the most keys of a shard whose memory is not worth freeing when most of
	// them are gone.
	fewKeys = 256

	// leastSpans is the number of spans for which a state with spans has room
	// from the start: with two, there are always two to join.
	leastSpans = 2
)

// item is a key with its state. Its shard's lock guards it.
type item struct {
	key   string
	state bucket.State
	bytes int64 // what it counts for in Store.bytes
	at    int32 // index in shard.items
	// pinned items belong to the group that is being decided, and are neither
	// swept nor evicted meanwhile.
	pinned bool
	// isLost is set on an item whose state was forgotten while it counted.
	isLost bool
}

// shard holds some of the keys. mu guards all of it.
type shard struct {
	mu    sync.Mutex
	index map[string]*item
	items []*item // those of index, in no order, to walk over and to sample
	hand  int     // the index in items at which the sweep goes on
	max   int     // the most items since index was made
	// reserved are bills beside the states of items, also of those that are gone.
	reserved reservations
	// Two locks are on different cache lines. The fields before have seven words.
	_ [2*64 - unsafe.Sizeof(reservations{}) - 7*unsafe.Sizeof(int(0))]byte
}

func (sh *shard) add(e *item) {
	if sh.index == nil {
		sh.index = make(map[string]*item)
	}
	e.at = int32(len(sh.items))
	sh.items = append(sh.items, e)
	sh.index[e.key] = e
	sh.max = max(sh.max, len(sh.items))
}

// newItem returns an item for the key of hit. It is pinned.
func newItem(hit *bucket.Hit) *item {
	e := &item{key: string(hit.Key), bytes: bytesOf(hit), pinned: true}
	if hit.Limit.Algorithm.HasSpans() {
		e.state.Spans = make([]bucket.Span, 0, leastSpans)
	}
	return e
}

// bytesOf returns about how many bytes a new item for hit takes: itself, its key,
// and its pointers in index, if that has just grown, and in items.
func bytesOf(hit *bucket.Hit) int64 {
	const pointers = 72
	n := int64(unsafe.Sizeof(item{})) + roundUp(len(hit.Key)) + pointers
	if hit.Limit.Algorithm.HasSpans() {
		n += leastSpans * int64(unsafe.Sizeof(bucket.Span{}))
	}
	return n
}

// roundUp returns how many bytes the runtime takes for a short text of n.
func roundUp(n int) int64 { return int64(n+15) &^ 15 }

// remove forgets an item and no longer counts it. The last one takes its index.
func (sh *shard) remove(s *Store, e *item) {
	last := len(sh.items) - 1
	moved := sh.items[last]
	moved.at = e.at
	sh.items[e.at] = moved
	sh.items[last] = nil
	sh.items = sh.items[:last]
	delete(sh.index, e.key)
	e.state = bucket.State{} // a bill may keep the item in memory
	s.keys.Add(-1)
	s.bytes.Add(-e.bytes)
}

// sweep looks at the next n items, removes those that have expired, and returns how many.
func (sh *shard) sweep(s *Store, n int, clock int64) (removed int) {
	for range min(n, len(sh.items)) {
		if sh.hand >= len(sh.items) {
			sh.hand = 0
		}
		e := sh.items[sh.hand]
		if e.pinned || e.state.KeptUntil() > clock {
			sh.hand++
			continue
		}
		sh.remove(s, e) // the next look is at the item that took its index
		removed++
	}
	return removed
}

// soonest returns the item of a small sample that expires first, or nil if all of
// the sample is pinned.
func (sh *shard) soonest() *item {
	var found *item
	n := len(sh.items)
	if n == 0 {
		return nil
	}
	start := rand.IntN(n)
	for i := range min(evictSample, n) {
		e := sh.items[(start+i)%n]
		if !e.pinned && (found == nil || e.state.KeptUntil() < found.state.KeptUntil()) {
			found = e
		}
	}
	return found
}

// sweepUntilStopped removes expired keys, shard after shard.
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
		all = max(all, len(sh.items))
		sh.sweep(s, sweepChunk, s.clock())
		sh.mu.Unlock()
	}
	for seen, all := 0, 1; seen < all; seen += sweepChunk {
		sh.mu.Lock()
		all = max(all, len(sh.reserved.items))
		sh.reserved.sweep(s, sweepChunk, s.clock())
		sh.mu.Unlock()
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.items) == 0 || sh.max > fewKeys && len(sh.items) < sh.max/4 {
		sh.shrink()
	}
}

// shrink makes a new index and new items for the keys that are left: neither a map nor a
// slice shrinks by itself.
func (sh *shard) shrink() {
	sh.items, sh.index = slices.Clone(sh.items), make(map[string]*item, len(sh.items))
	for _, e := range sh.items {
		sh.index[e.key] = e
	}
	sh.max = len(sh.items)
}
