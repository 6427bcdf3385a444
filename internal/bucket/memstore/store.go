// Package memstore keeps the states of limits in this process's memory: the
// default store, for one daemon on one machine.
//
// Keys are spread over shards, each with a lock of its own. A group locks the
// shards of all its keys, in their order, so it is atomic whatever it holds.
// Nothing has a timer: expired keys are removed a few at each insertion and by
// a sweep in the background.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// WhenFull says what becomes of a key for which there is no room.
type WhenFull uint8

const (
	// Allow decides such a key as if it were new, and forgets it.
	Allow WhenFull = iota
	// Deny denies it.
	Deny
	// Evict gives it the place of the key that expires soonest among a few.
	Evict
)

// ParseWhenFull returns the policy of that name: allow, deny or evict.
func ParseWhenFull(name string) (WhenFull, error) {
	switch name {
	case "allow":
		return Allow, nil
	case "deny":
		return Deny, nil
	case "evict":
		return Evict, nil
	}
	return 0, fmt.Errorf("%q is neither allow, deny nor evict", name)
}

// maxSkew is how far ahead of the clock a state's last moment lies at most. The
// store's own clock never goes back; one that a test injects may.
var maxSkew = bucket.DefaultMaxClockSkew.Microseconds()

// fullRetry is the retry time of a hit that is denied for want of room: by
// then the sweep has passed all shards.
const fullRetry = sweepEvery

// Options of a Store.
type Options struct {
	// MaxKeys is the most keys that are kept; at least 1.
	MaxKeys int64
	// MaxBytes is about how many bytes all that is kept takes at most; 0 is no
	// bound but MaxKeys.
	MaxBytes int64
	// WhenFull says what becomes of a new key for which there is no room. A
	// sliding_window or sliding_log that has a key needs more room for more hits;
	// where there is none, hits share what it has, and may count for longer.
	WhenFull WhenFull
	// Clock returns the moment in microseconds since the Unix epoch. If nil,
	// it is the wall clock as of New plus the monotonic time since.
	Clock func() int64
}

// Stats are counts since the start; Keys and Bytes are those of the moment.
type Stats struct {
	Keys     int64 // held now, expired ones that are not yet removed included
	Bytes    int64 // that they take, about
	Evicted  int64 // keys that lost their place to another
	Degraded int64 // hits that met a full store
}

// Store is a bucket.Store in memory.
type Store struct {
	clock    func() int64
	start    int64 // of the clock
	maxKeys  int64
	maxBytes int64
	whenFull WhenFull
	seed     maphash.Seed
	shards   []shard
	groups   sync.Pool

	keys, bytes, evicted, degraded atomic.Int64

	stop  chan struct{}
	swept sync.WaitGroup
}

var _ bucket.Store = (*Store)(nil)

// New returns an empty store and starts its sweep, which Close ends.
func New(o Options) *Store {
	s := &Store{
		clock:    o.Clock,
		maxKeys:  max(1, o.MaxKeys),
		maxBytes: cmp.Or(o.MaxBytes, math.MaxInt64),
		whenFull: o.WhenFull,
		seed:     maphash.MakeSeed(),
		shards:   make([]shard, shardsFor(o.MaxKeys)),
		groups:   sync.Pool{New: func() any { return new(group) }},
		stop:     make(chan struct{}),
	}
	if s.clock == nil {
		start := time.Now()
		epoch := start.UnixMicro()
		s.clock = func() int64 { return epoch + time.Since(start).Microseconds() }
	}
	s.start = s.clock()
	for i := range s.shards {
		s.shards[i].index = make(map[string]*entry)
	}
	s.swept.Go(s.sweepUntilStopped)
	return s
}

// shardsFor returns a power of two: many shards for little contention, but few
// where a shard would hold too few keys to find one to evict.
func shardsFor(maxKeys int64) int {
	n := 256
	for n > 1 && maxKeys/int64(n) < 64 {
		n /= 2
	}
	return n
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	return Stats{Keys: s.keys.Load(), Bytes: s.bytes.Load(), Evicted: s.evicted.Load(), Degraded: s.degraded.Load()}
}

// Ping implements bucket.Store.
func (s *Store) Ping(context.Context) error { return nil }

// Close ends the sweep.
func (s *Store) Close() error {
	close(s.stop)
	s.swept.Wait()
	return nil
}

var errLength = errors.New("memstore: as many decisions as hits are needed")

// Take implements bucket.Store. It fails only on arguments of unequal length:
// memory always answers, so ctx is not looked at.
func (s *Store) Take(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.run(hits, decisions, s.take)
}

// Check implements bucket.Store; it fails as Take does.
func (s *Store) Check(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.run(hits, decisions, s.check)
}

// run decides hits as one locked group.
func (s *Store) run(hits []bucket.Hit, decisions []bucket.Decision, decide func(*group, int64)) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	g := s.lock(hits)
	decide(g, s.clock())
	s.unlock(g)
	for i, j := range g.of {
		decisions[i] = g.decisions[j]
	}
	s.release(g)
	return nil
}

// GiveBack implements bucket.Store; it fails as Take does. What was taken before
// the store was made is in none of its states.
func (s *Store) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	g := s.lock(hits)
	for i, j := range g.of {
		g.decisions[j] = decisions[i]
	}
	clock, allowed := s.clock(), bucket.GroupAllowed(g.hits, g.decisions)
	for i, e := range g.entries {
		if e != nil && g.decisions[i].At >= s.start && bucket.Charged(&g.hits[i], &g.decisions[i], allowed) {
			g.hits[i].Limit.Mend(&e.state, clock, maxSkew)
			g.hits[i].Limit.GiveBack(&e.state, clock, g.decisions[i].At, g.hits[i].Cost)
		}
	}
	s.unlock(g)
	s.release(g)
	return nil
}

// group is the working memory of one call: hits with distinct keys, their
// entries (nil where there is none) and what they got.
type group struct {
	hits      []bucket.Hit
	of        []int
	shards    []int // of each hit
	locked    []int // sorted, distinct
	entries   []*entry
	decisions []bucket.Decision
}

func (g *group) shard(s *Store, i int) *shard { return &s.shards[g.shards[i]] }

// lock makes a group of the hits, locks the shards of its keys and looks the
// keys up. release ends its use, after unlock.
func (s *Store) lock(hits []bucket.Hit) *group {
	g := s.groups.Get().(*group)
	g.hits, g.of = bucket.Merge(g.hits[:0], g.of[:0], hits)
	n := len(g.hits)
	g.shards, g.locked = g.shards[:0], g.locked[:0]
	for i := range g.hits {
		sh := int(maphash.Bytes(s.seed, g.hits[i].Key)) & (len(s.shards) - 1)
		g.shards = append(g.shards, sh)
	}
	g.locked = append(g.locked, g.shards...)
	if n > 1 {
		slices.Sort(g.locked)
		g.locked = slices.Compact(g.locked)
	}
	for _, sh := range g.locked {
		s.shards[sh].mu.Lock()
	}
	g.entries = g.entries[:0]
	for i := range g.hits {
		e := g.shard(s, i).index[string(g.hits[i].Key)]
		if e != nil {
			e.pinned = true
		}
		g.entries = append(g.entries, e)
	}
	g.decisions = slices.Grow(g.decisions[:0], n)[:n]
	return g
}

// unlock removes the entries that have nothing to remember and unlocks.
func (s *Store) unlock(g *group) {
	for i, e := range g.entries {
		if e == nil {
			continue
		}
		e.pinned = false
		if e.state.Expires == 0 {
			g.shard(s, i).remove(s, e)
		}
	}
	for _, sh := range g.locked {
		s.shards[sh].mu.Unlock()
	}
}

func (s *Store) release(g *group) {
	clear(g.hits)
	clear(g.entries)
	s.groups.Put(g)
}

// decide tells what each hit of a locked group gets from its limit, and
// whether the group is allowed if there is room for its new keys.
func (s *Store) decide(g *group, clock int64) (allowed bool) {
	for i := range g.hits {
		h := &g.hits[i]
		if e := g.entries[i]; e != nil {
			h.Limit.Mend(&e.state, clock, maxSkew)
			g.decisions[i] = h.Limit.Decide(&e.state, clock, h.Cost)
		} else {
			g.decisions[i] = h.Limit.Decide(&bucket.State{}, clock, h.Cost)
			if h.Cost == 0 && s.whenFull == Deny && !s.hasRoom(1, bytesOf(h)) && g.shard(s, i).sweep(s, 64, clock) == 0 {
				s.deny(&g.decisions[i]) // as a cost of 1 would be
			}
		}
	}
	return bucket.GroupAllowed(g.hits, g.decisions)
}

// check decides a locked group. It makes no entries, but counts the room for
// them as take would find it.
func (s *Store) check(g *group, clock int64) {
	allowed := s.decide(g, clock)
	keys, bytes := int64(0), int64(0) // that the hits before need
	for i := range g.hits {
		h := &g.hits[i]
		if g.entries[i] != nil || h.Cost <= 0 || !bucket.Due(h, &g.decisions[i], allowed) {
			continue
		}
		more := bytesOf(h)
		hasRoom := s.hasRoom(keys+1, bytes+more)
		if !hasRoom && g.shard(s, i).sweep(s, 64, clock) > 0 {
			hasRoom = s.hasRoom(keys+1, bytes+more)
		}
		switch {
		case hasRoom:
			keys, bytes = keys+1, bytes+more
		case s.whenFull == Deny:
			s.deny(&g.decisions[i])
			allowed = bucket.GroupAllowed(g.hits, g.decisions)
		default:
			s.degrade(&g.decisions[i])
		}
	}
}

// take decides and charges a locked group.
func (s *Store) take(g *group, clock int64) {
	allowed := s.decide(g, clock)
	if allowed && !s.admit(g, clock) {
		allowed = false
	}
	for i := range g.hits {
		h := &g.hits[i]
		if !bucket.Due(h, &g.decisions[i], allowed) {
			continue
		}
		e := g.entries[i]
		if e == nil && !allowed && h.Cost > 0 && !g.decisions[i].Degraded {
			e = s.place(g, i, clock)
		}
		switch {
		case e != nil:
			s.charge(e, h, clock, &g.decisions[i])
		case h.Cost > 0 && s.whenFull != Deny:
			// Decided as a new key, and forgotten.
			g.decisions[i] = h.Limit.Charge(&bucket.State{}, clock, h.Cost, g.decisions[i])
			g.decisions[i].At = 0
		}
	}
}

// admit finds places for the new keys of a group that is allowed so far. It
// reports false where the want of room denies it.
func (s *Store) admit(g *group, clock int64) bool {
	for i, e := range g.entries {
		h := &g.hits[i]
		if e != nil || h.Cost <= 0 || !bucket.Due(h, &g.decisions[i], true) {
			continue
		}
		if s.place(g, i, clock) == nil && s.whenFull == Deny && !bucket.GroupAllowed(g.hits, g.decisions) {
			return false
		}
	}
	return true
}

// charge writes a hit into the state of its key, and counts the bytes by which
// that grows. Where there is no room for more it does not grow.
func (s *Store) charge(e *entry, h *bucket.Hit, clock int64, d *bucket.Decision) {
	spans := &e.state.Spans
	before := cap(*spans)
	if len(*spans) == before && before >= leastSpans && s.bytes.Load()+int64(before)*spanBytes > s.maxBytes {
		e.state.JoinNewest()
	}
	*d = h.Limit.Charge(&e.state, clock, h.Cost, *d)
	if grown := int64(cap(*spans)-before) * spanBytes; grown != 0 {
		e.bytes += grown
		s.bytes.Add(grown)
	}
}

// place makes an entry for hit i, which has none and will be charged. It
// returns nil when there is no room, with the hit's decision saying so.
func (s *Store) place(g *group, i int, clock int64) *entry {
	d := &g.decisions[i]
	sh := g.shard(s, i)
	sh.sweep(s, 2, clock)
	size := bytesOf(&g.hits[i])
	ok := s.reserve(size)
	if !ok && sh.sweep(s, 64, clock) > 0 {
		ok = s.reserve(size)
	}
	if !ok {
		switch s.whenFull {
		case Allow:
			s.degrade(d)
			return nil
		case Deny:
			s.deny(d)
			return nil
		case Evict:
			s.degrade(d)
			if !s.evict(sh, size) {
				return nil
			}
		}
	}
	e := newEntry(&g.hits[i])
	sh.add(e)
	g.entries[i] = e
	return e
}

// evict forgets keys of a shard until there is room for a new one of so many
// bytes, and reserves that. It reports false where a few keys are not enough.
func (s *Store) evict(sh *shard, size int64) bool {
	const few = 8
	for range few {
		victim := sh.soonest()
		if victim == nil {
			return false
		}
		s.evicted.Add(1)
		sh.remove(s, victim)
		if s.reserve(size) {
			return true
		}
	}
	return false
}

func (s *Store) degrade(d *bucket.Decision) {
	s.degraded.Add(1)
	d.Degraded = true
}

func (s *Store) deny(d *bucket.Decision) {
	s.degrade(d)
	d.RetryAfter = fullRetry
}

// hasRoom reports whether there is room for so many more keys and bytes.
func (s *Store) hasRoom(keys, bytes int64) bool {
	return s.keys.Load()+keys <= s.maxKeys && s.bytes.Load()+bytes <= s.maxBytes
}

// reserve counts one more key of so many bytes, if there is room.
func (s *Store) reserve(bytes int64) bool {
	if s.keys.Add(1) <= s.maxKeys {
		if s.bytes.Add(bytes) <= s.maxBytes {
			return true
		}
		s.bytes.Add(-bytes)
	}
	s.keys.Add(-1)
	return false
}
