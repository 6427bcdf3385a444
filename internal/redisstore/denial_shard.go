package redisstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// denialShard holds denials by the hash of a key that denied, in two generations. A
// denial goes into recent. When recent is full, or as old as a denial may become, it
// replaces older, whose denials are forgotten: they have ended, or there is no room for
// them. So what has ended is freed by what comes later, and an empty shard costs no lock.
type denialShard struct {
	lasts    time.Duration
	maxBytes int // of a generation

	mu            sync.Mutex
	recent, older map[uint64]*denial
	bytes         int          // of recent
	began         time.Time    // when recent began
	n             atomic.Int32 // the number of denials
}

// find returns the latest denial by a key, or nil. It may have ended.
func (sh *denialShard) find(hash uint64, now time.Time) *denial {
	if sh.n.Load() == 0 {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if now.Sub(sh.began) >= sh.lasts {
		sh.turn(now)
	}
	if k := sh.recent[hash]; k != nil {
		return k
	}
	return sh.older[hash]
}

// put remembers a denial in the place of another by the same key.
func (sh *denialShard) put(hash uint64, k *denial) {
	size := k.size()
	if size > sh.maxBytes {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if before := sh.recent[hash]; before != nil {
		sh.bytes -= before.size()
	}
	if sh.bytes+size > sh.maxBytes || k.received.Sub(sh.began) >= sh.lasts {
		sh.turn(k.received)
	}
	if sh.recent == nil {
		sh.recent = make(map[uint64]*denial)
	}
	sh.recent[hash] = k
	sh.bytes += size
	sh.count()
}

// turn begins a generation. mu is held.
func (sh *denialShard) turn(now time.Time) {
	sh.older, sh.recent = sh.recent, nil
	sh.bytes, sh.began = 0, now
	sh.count()
}

func (sh *denialShard) count() { sh.n.Store(int32(len(sh.recent) + len(sh.older))) }
