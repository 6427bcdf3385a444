package client

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
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
	client  *Client
	off     bool
	now     func() lease.Instant
	longest time.Duration // that is believed
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

func newLeases(c *Client) *leases {
	l := &leases{client: c, off: c.options.noLeases, longest: bucket.MaxLease, seed: maphash.MakeSeed()}
	l.now = func() lease.Instant {
		now := time.Now()
		return lease.Instant{Mono: int64(now.Sub(c.made)), Wall: now.UnixNano()}
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
func (l *leases) track(key []byte, answer lease.Answer[*Result]) {
	if l.off {
		return
	}
	now := l.now()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdings[string(key)] != nil || len(s.holdings) >= shardHoldings && !l.sweep(s, now) {
		return
	}
	h := lease.New(l, string(key), now)
	h.Note(answer)
	s.holdings[h.Key] = h
	l.tracked.Add(1)
}

// sweep drops what is idle, and reports whether there is room then. It looks once in a
// while.
func (l *leases) sweep(s *leaseShard, now lease.Instant) bool {
	if now.Mono-s.swept < int64(idleAfter) {
		return false
	}
	s.swept = now.Mono
	for key, h := range s.holdings {
		if h.IsIdle(now, idleAfter) {
			units, denied := h.Counts()
			l.client.stats.leased.Add(units)
			l.client.stats.leasedDenied.Add(denied)
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
