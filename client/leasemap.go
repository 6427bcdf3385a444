package client

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	leaseShards = 16
	// shardHoldings bounds memory: requests beyond it are not leased.
	shardHoldings = 4096
	// idleAfter is when a holding may make room for another: longer than any lease.
	idleAfter = time.Second
)

// leases finds what the client holds.
type leases struct {
	off     bool
	now     func() instant
	seed    maphash.Seed
	tracked atomic.Int64 // the number of holdings; negative once the client is closed
	shards  [leaseShards]leaseShard
}

type leaseShard struct {
	mu       sync.RWMutex
	holdings map[string]*holding
	swept    int64 // when it last looked for idle holdings, on the monotonic clock

	_ [64]byte // other shards are used meanwhile
}

func newLeases(off bool, made time.Time) *leases {
	l := &leases{off: off, seed: maphash.MakeSeed()}
	l.now = func() instant {
		now := time.Now()
		return instant{mono: int64(now.Sub(made)), wall: now.UnixNano()}
	}
	for i := range l.shards {
		l.shards[i].holdings = make(map[string]*holding)
	}
	return l
}

func (l *leases) shard(key []byte) *leaseShard {
	return &l.shards[maphash.Bytes(l.seed, key)%leaseShards]
}

// find returns the holding for a key, or nil.
func (l *leases) find(key []byte) *holding {
	s := l.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.holdings[string(key)]
}

// track makes a holding for a key whose request was answered, unless there are too many.
func (l *leases) track(c *Client, key []byte, answer *Result) {
	if l.off {
		return
	}
	now := l.now()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdings[string(key)] != nil || len(s.holdings) >= shardHoldings && !l.sweep(c, s, now) {
		return
	}
	h := &holding{client: c, key: string(key), sampled: now.mono}
	h.note(answer)
	s.holdings[h.key] = h
	l.tracked.Add(1)
}

// sweep drops what is idle, and reports whether there is room then. It looks once in a
// while.
func (l *leases) sweep(c *Client, s *leaseShard, now instant) bool {
	if now.mono-s.swept < int64(idleAfter) {
		return false
	}
	s.swept = now.mono
	for key, h := range s.holdings {
		if h.isIdle(now) {
			units, denied := h.counts()
			c.stats.leased.Add(units)
			c.stats.leasedDenied.Add(denied)
			delete(s.holdings, key)
			l.tracked.Add(-1)
		}
	}
	return len(s.holdings) < shardHoldings
}

// each calls f for every holding.
func (l *leases) each(f func(*holding)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.RLock()
		for _, h := range s.holdings {
			f(h)
		}
		s.mu.RUnlock()
	}
}
