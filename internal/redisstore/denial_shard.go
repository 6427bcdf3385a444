package redisstore

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// denialShard holds denials by the hash of the key that denied, in two generations. A
// denial goes into recent. When recent fills half of the memory, or is as old as a
// denial may become, it replaces older, whose denials are forgotten: they have ended,
// or there is no room for them.
type denialShard struct {
	lasts time.Duration
	bytes int // the maximum of a generation

	mu            sync.Mutex
	recent, older generation
	began         time.Time // when recent began
	// n is the number of denials, so that find need not lock an empty shard.
	n atomic.Int32
}

type generation struct {
	byKey map[uint64]*denial
	bytes int
}

func (sh *denialShard) init(lasts time.Duration, bytes int) {
	sh.lasts, sh.bytes = lasts, bytes/2
}

// find returns the denial by a hit's limit and key, or nil if there is none or it
// has ended.
func (sh *denialShard) find(h *bucket.Hit, hash uint64, now time.Time) *denial {
	if sh.n.Load() == 0 {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := sh.recent.byKey[hash]
	if k == nil {
		k = sh.older.byKey[hash]
	}
	if k == nil {
		return nil
	}
	if by := &k.hits[k.by]; by.Limit != h.Limit && bytes.Equal(by.Key, h.Key) {
		// With other numbers the key's state may end sooner.
		sh.remove(hash)
		return nil
	}
	if !now.Before(k.until) {
		sh.remove(hash)
		return nil
	}
	if now.Before(k.received) {
		return nil // it came after the caller looked at the clock, or the clock was set back
	}
	return k
}

// put remembers a denial, and replaces another by the same key.
func (sh *denialShard) put(hash uint64, k *denial) {
	size := k.size()
	if size > sh.bytes {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.remove(hash)
	sh.turn(k.received)
	if sh.recent.bytes+size > sh.bytes {
		sh.older, sh.recent, sh.began = sh.recent, generation{}, k.received
	}
	if sh.recent.byKey == nil {
		sh.recent.byKey = make(map[uint64]*denial)
	}
	sh.recent.byKey[hash] = k
	sh.recent.bytes += size
	sh.count()
}

// remove forgets the denial by a key, if there is one. mu is held.
func (sh *denialShard) remove(hash uint64) {
	sh.recent.remove(hash)
	sh.older.remove(hash)
	sh.count()
}

func (g *generation) remove(hash uint64) {
	if k := g.byKey[hash]; k != nil {
		g.bytes -= k.size()
		delete(g.byKey, hash)
	}
}

func (sh *denialShard) forgetEnded(now time.Time) {
	if sh.n.Load() == 0 {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.turn(now)
	sh.count()
}

// turn ends the generations that are old enough. mu is held.
func (sh *denialShard) turn(now time.Time) {
	if now.Sub(sh.began) < sh.lasts {
		return
	}
	sh.older, sh.recent = sh.recent, generation{}
	if now.Sub(sh.began) >= 2*sh.lasts {
		sh.older = generation{}
	}
	sh.began = now
}

func (sh *denialShard) count() { sh.n.Store(int32(len(sh.recent.byKey) + len(sh.older.byKey))) }

// size is about how many bytes the denial keeps alive. That includes its limits: this
// denial alone may keep a limit that a request brought.
func (k *denial) size() int {
	const (
		limit    = unsafe.Sizeof(bucket.Limit{}) + 256 // with its texts
		mapEntry = 64                                  // of a map that has just grown
		each     = limit + unsafe.Sizeof(bucket.Hit{}) + unsafe.Sizeof(bucket.Decision{})
	)
	n := int(unsafe.Sizeof(*k)+mapEntry) + len(k.hits)*int(each)
	for i := range k.hits {
		n += len(k.hits[i].Key)
	}
	return n
}
