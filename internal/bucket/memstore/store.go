// Package memstore keeps the states of limits in this process's memory: it is the
// default store, for one daemon on one machine. It imports only bucket.
//
// Keys are spread over shards, each with a lock of its own. A group locks the
// shards of all its keys, in their order, so that it is atomic and cannot
// deadlock. No key has a timer: expired keys are removed a few at each insertion,
// and by a sweep in the background.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// WhenFull says how a hit on a new key is decided if there is no room for the key.
type WhenFull uint8

const (
	// Allow decides the hit as the key's first, and does not remember it.
	Allow WhenFull = iota
	// Deny denies the hit.
	Deny
	// Evict forgets the key that expires soonest among a few, to make room.
	Evict
)

// maxSkew is the most by which a state's last moment may be ahead of the clock. The
// store's own clock never goes back; one that a test injects may.
var maxSkew = bucket.DefaultMaxClockSkew.Microseconds()

// fullRetry is the retry time of a hit that is denied because there is no room: by then
// the sweep has visited all shards.
const fullRetry = sweepEvery

// Options of a Store.
type Options struct {
	// MaxKeys is the maximum number of keys; at least 1.
	MaxKeys int64
	// MaxBytes is about the maximum number of bytes of all keys and states; 0 means no
	// bound besides MaxKeys.
	MaxBytes int64
	// WhenFull says how hits on new keys, and hits of new holders, are decided if there
	// is no room. The state of a sliding_window or sliding_log also grows with its
	// hits; if there is no room for that, hits share spans, and may count for longer.
	WhenFull WhenFull
	// Ordered asks for the Seq of decisions, at the cost of a counter that all share.
	Ordered bool
	// Clock returns the time in microseconds since the Unix epoch; nil means the
	// wall clock at the time of New plus the monotonic time since.
	Clock func() int64
}

// Stats are numbers of a Store.
type Stats struct {
	Keys     int64 // now, including expired ones that are not yet removed
	Bytes    int64 // about what the keys and their states take now
	Evicted  int64 // keys since New that were forgotten to make room
	Degraded int64 // hits since New that found no room
	// Reservations are the bills of IDs now, which are among the Keys and Bytes, and
	// Unreserved the charges since New for whose bill there was no room.
	Reservations, Unreserved int64

	MaxKeys, MaxBytes int64 // as in Options, math.MaxInt64 where there is no bound
}

// Store is a bucket.Store in memory.
type Store struct {
	clock    func() int64
	start    int64 // by the clock
	maxKeys  int64
	maxBytes int64
	whenFull WhenFull
	ordered  bool
	seq      atomic.Uint32 // of the last group, if ordered
	seed     maphash.Seed
	shards   []shard
	groups   sync.Pool

	keys, bytes, evicted, degraded atomic.Int64
	reserved                       usage
	reservedBy                     sync.Map // of usage, by the owner of reservations
	unreserved                     atomic.Int64

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
		ordered:  o.Ordered,
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
	s.swept.Go(s.sweepUntilStopped)
	return s
}

// shardsFor returns the number of shards, a power of two: up to 256 for little
// contention, but few enough that a shard has several keys to choose from when it
// evicts one.
func shardsFor(maxKeys int64) int {
	n := 256
	for n > 1 && maxKeys/int64(n) < 64 {
		n /= 2
	}
	return n
}

// Stats returns the current numbers.
func (s *Store) Stats() Stats {
	return Stats{
		Keys: s.keys.Load(), Bytes: s.bytes.Load(), Evicted: s.evicted.Load(), Degraded: s.degraded.Load(),
		Reservations: s.reserved.keys.Load(), Unreserved: s.unreserved.Load(),
		MaxKeys: s.maxKeys, MaxBytes: s.maxBytes,
	}
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

// Take implements bucket.Store. It fails only if the lengths of its arguments
// differ. It does not wait, so it does not look at ctx.
func (s *Store) Take(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.run(hits, decisions, s.take)
}

// Check implements bucket.Store; it fails like Take.
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
	seq := s.next()
	s.unlock(g)
	for i, j := range g.of {
		decisions[i] = g.decisions[j]
		decisions[i].Seq = seq
	}
	s.release(g)
	return nil
}

// next returns the Seq of a locked group. Keys are locked while their decisions get it,
// so it grows with each decision about a key.
func (s *Store) next() uint32 {
	if !s.ordered {
		return 0
	}
	return s.seq.Add(1)
}

// GiveBack implements bucket.Store; it fails like Take. It skips decisions from before
// New, whose charges are in none of the states.
func (s *Store) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	g := s.lock(hits)
	for i, j := range g.of {
		g.decisions[j] = decisions[i]
	}
	clock, allowed := s.clock(), bucket.GroupAllowed(g.hits, g.decisions)
	seq := s.next()
	for i, e := range g.items {
		// Mend before the first give-back, which may move a state further ahead.
		if h, d := &g.hits[i], &g.decisions[i]; e != nil && d.At >= s.start && bucket.Charged(h, d, allowed) {
			h.Limit.Mend(&e.state, clock, maxSkew)
		}
	}
	for i, e := range g.items {
		h, d := &g.hits[i], &g.decisions[i]
		if !bucket.Charged(h, d, allowed) {
			continue
		}
		if e != nil && d.At >= s.start {
			before := e.state.Bytes()
			h.Limit.GiveBack(&e.state, clock, d.At, h.Demand(0))
			s.recount(e, before)
		}
		d.At, d.Seq = clock, seq
	}
	s.unlock(g)
	for i, j := range g.of {
		decisions[i] = g.decisions[j]
	}
	s.release(g)
	return nil
}

// group is a group of hits with distinct keys, their items and their decisions, and the
// memory for deciding it.
type group struct {
	hits      []bucket.Hit
	of        []int    // for each hit of the caller, its index in hits
	hashes    []uint64 // for each hit, of its key
	locked    []int    // the distinct shards, in ascending order
	items     []*item  // for each hit; nil if its key is not kept
	decisions []bucket.Decision
	// degraded counts the hits that found no room.
	degraded int64
	none     bucket.State // of a key that is not kept
	text     []byte       // the key of a bill
}

// Locate implements bucket.Store. A key is its own name.
func (s *Store) Locate(h *bucket.Hit) bucket.Location { return bucket.Location{Key: string(h.Key)} }

// Forget implements bucket.Store.
func (s *Store) Forget(keys []string) {
	hashes, locked := make([]uint64, len(keys)), make([]int, len(keys))
	for i, key := range keys {
		hashes[i] = s.hash(key)
		locked[i] = s.shardOf(hashes[i])
	}
	slices.Sort(locked)
	locked = slices.Compact(locked)
	for _, sh := range locked {
		s.shards[sh].mu.Lock()
	}
	for i, key := range keys {
		sh := &s.shards[s.shardOf(hashes[i])]
		if e := sh.index[key]; e != nil {
			e.isLost = true
			sh.remove(s, e)
		}
	}
	for _, sh := range locked {
		s.shards[sh].mu.Unlock()
	}
}

// Holders returns who holds slots of the hit's state: the first n of them, or of a hit that
// names a holder this one alone.
func (s *Store) Holders(_ context.Context, h *bucket.Hit, n int) (bucket.Held, error) {
	hash := maphash.Bytes(s.seed, h.Key)
	sh := &s.shards[s.shardOf(hash)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.index[string(h.Key)]
	if e == nil {
		return bucket.Held{}, nil
	}
	return e.state.Held(s.clock(), h.Holder, n), nil
}

// Counted returns how many of the keys have a state in which something counts.
func (s *Store) Counted(keys []string) (n int) {
	clock := s.clock()
	for _, key := range keys {
		hash := s.hash(key)
		sh := &s.shards[s.shardOf(hash)]
		sh.mu.Lock()
		if e := sh.index[key]; e != nil && e.state.KeptUntil() > clock {
			n++
		}
		sh.mu.Unlock()
	}
	return n
}

func (s *Store) hash(key string) uint64 { return maphash.String(s.seed, key) }

// shardOf returns the index of the shard of a key with this hash.
func (s *Store) shardOf(hash uint64) int { return int(hash) & (len(s.shards) - 1) }

func (g *group) shard(s *Store, i int) *shard { return &s.shards[s.shardOf(g.hashes[i])] }

// lock makes a group of the hits, locks the shards of its keys and looks the
// keys up. release ends its use, after unlock.
func (s *Store) lock(hits []bucket.Hit) *group {
	g := s.groups.Get().(*group)
	g.hits, g.of = bucket.Merge(g.hits[:0], g.of[:0], hits)
	n := len(g.hits)
	g.hashes, g.locked = g.hashes[:0], g.locked[:0]
	for i := range g.hits {
		hash := maphash.Bytes(s.seed, g.hits[i].Key)
		g.hashes = append(g.hashes, hash)
		g.locked = append(g.locked, s.shardOf(hash))
	}
	if n > 1 {
		slices.Sort(g.locked)
		g.locked = slices.Compact(g.locked)
	}
	for _, sh := range g.locked {
		s.shards[sh].mu.Lock()
	}
	g.items = g.items[:0]
	for i := range g.hits {
		e := g.shard(s, i).index[string(g.hits[i].Key)]
		if e != nil {
			e.pinned = true
		}
		g.items = append(g.items, e)
	}
	g.decisions = slices.Grow(g.decisions[:0], n)[:n]
	return g
}

// unlock removes the items whose states are empty, and unlocks the shards.
func (s *Store) unlock(g *group) {
	for i, e := range g.items {
		if e == nil || !e.pinned { // several hits may have one item
			continue
		}
		e.pinned = false
		if e.state.KeptUntil() == 0 {
			g.shard(s, i).remove(s, e)
		}
	}
	for _, sh := range g.locked {
		s.shards[sh].mu.Unlock()
	}
}

func (s *Store) release(g *group) {
	g.degraded = 0
	clear(g.hits)
	clear(g.items)
	s.groups.Put(g)
}

// decide decides each hit of a locked group by itself. It reports whether the group
// is allowed if there is room for its new keys.
func (s *Store) decide(g *group, clock int64) (allowed bool) {
	var pending bucket.Pending
	for i := range g.hits {
		h := &g.hits[i]
		demand := h.Demand(pending.Before(g.hits, g.decisions, i))
		if e := g.items[i]; e != nil {
			h.Limit.Mend(&e.state, clock, maxSkew)
			g.decisions[i] = h.Limit.Decide(&e.state, clock, demand)
		} else {
			g.decisions[i] = h.Limit.DecideFirst(clock, demand)
		}
		if h.Cost == 0 && s.whenFull == Deny {
			s.denyPeek(g, i, clock)
		}
	}
	return bucket.GroupAllowed(g.hits, g.decisions)
}

// denyPeek denies a peek if there is no room for what a cost of 1 would need.
func (s *Store) denyPeek(g *group, i int, clock int64) {
	keys, bytes := s.needs(g, i, 0)
	if keys+bytes > 0 && !s.hasRoom(keys, bytes) && g.shard(s, i).sweep(s, 64, clock) == 0 {
		g.deny(&g.decisions[i])
	}
}

// needs returns how many keys and bytes hit i needs room for if it is charged a cost: a
// new key, and the slot of a holder that has none yet. pending is how many hits before
// it are about to take slots of the same key, and have the room for that.
func (s *Store) needs(g *group, i int, pending int64) (keys, bytes int64) {
	h, e := &g.hits[i], g.items[i]
	if e == nil && pending == 0 {
		keys, bytes = 1, bytesOf(h)
	}
	return keys, bytes + s.slotOf(g, i, pending)
}

// slotOf returns the bytes of the slot that hit i is about to take, after those that
// are pending: 0 if its holder has a slot, or if it has no holder.
func (s *Store) slotOf(g *group, i int, pending int64) int64 {
	h, d := &g.hits[i], &g.decisions[i]
	if h.Holder == "" || !d.Allowed() {
		return 0
	}
	if e := g.items[i]; e != nil {
		return e.state.Growth(h.Holder, pending)
	}
	return new(bucket.State).Growth(h.Holder, pending)
}

// check decides a locked group. It inserts no items, but looks for room for them like
// take. Its decisions are not anybody's answer, so it counts none as degraded.
func (s *Store) check(g *group, clock int64) {
	allowed := s.decide(g, clock)
	keys, bytes := int64(0), int64(0) // needed by the hits so far
	var pending bucket.Pending
	for i := range g.hits {
		h := &g.hits[i]
		if g.items[i] != nil && h.Holder == "" || h.Cost <= 0 || !bucket.Due(h, &g.decisions[i], allowed) {
			continue
		}
		moreKeys, moreBytes := s.needs(g, i, pending.Before(g.hits, g.decisions, i))
		hasRoom := moreKeys+moreBytes == 0 || s.hasRoom(keys+moreKeys, bytes+moreBytes)
		if !hasRoom && g.shard(s, i).sweep(s, 64, clock) > 0 {
			hasRoom = s.hasRoom(keys+moreKeys, bytes+moreBytes)
		}
		switch {
		case hasRoom:
			keys, bytes = keys+moreKeys, bytes+moreBytes
		case s.whenFull == Deny:
			g.deny(&g.decisions[i])
			allowed = bucket.GroupAllowed(g.hits, g.decisions)
		default:
			g.degrade(&g.decisions[i])
			g.takeNoSlot(i)
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
		e := g.items[i]
		if !bucket.Due(h, &g.decisions[i], allowed) {
			if e != nil && !g.decisions[i].Degraded {
				e.state.StartPause(h, clock, &g.decisions[i])
			}
			continue
		}
		if e == nil && !allowed && h.Cost > 0 && !g.decisions[i].Degraded {
			e = s.insert(g, i, clock)
		}
		switch {
		case e != nil:
			s.charge(e, h, clock, &g.decisions[i])
		case h.Cost > 0 && s.whenFull != Deny:
			// The key is not kept, so the hit is decided as its first.
			g.none = bucket.State{}
			g.decisions[i] = h.Limit.Charge(&g.none, clock, h.Demand(0), g.decisions[i])
			g.decisions[i].At = 0
		}
	}
	if g.degraded > 0 {
		s.degraded.Add(g.degraded)
	}
}

// admit inserts the new keys of a group that is allowed so far, and finds room for its
// new holders. It reports false if the group is denied for lack of room.
func (s *Store) admit(g *group, clock int64) bool {
	var pending bucket.Pending
	slots := int64(0) // bytes of the slots that hits so far are about to take
	for i, e := range g.items {
		h := &g.hits[i]
		if e != nil && h.Holder == "" || h.Cost <= 0 || !bucket.Due(h, &g.decisions[i], true) {
			continue
		}
		hasRoom := e != nil || s.insert(g, i, clock) != nil
		if hasRoom && h.Holder != "" {
			slot := s.slotOf(g, i, pending.Before(g.hits, g.decisions, i))
			if hasRoom = slot == 0 || s.makeRoomForSlot(g, i, clock, slots+slot); hasRoom {
				slots += slot
			}
		}
		switch {
		case hasRoom:
		case s.whenFull != Deny:
			g.takeNoSlot(i)
		case !bucket.GroupAllowed(g.hits, g.decisions):
			return false
		}
	}
	return true
}

// makeRoomForSlot finds room for this many bytes: for the slot that hit i is about to
// take, and for those of hits before it. It may evict for that, which marks the hit's
// decision as degraded. If there is no room, it reports false, and the decision is
// degraded or denied.
func (s *Store) makeRoomForSlot(g *group, i int, clock, bytes int64) bool {
	if s.hasRoom(0, bytes) {
		return true
	}
	sh, d := g.shard(s, i), &g.decisions[i]
	if sh.sweep(s, 64, clock) > 0 && s.hasRoom(0, bytes) {
		return true
	}
	if s.whenFull == Deny {
		g.deny(d)
		return false
	}
	g.degrade(d)
	return s.whenFull == Evict && s.evict(sh, func() bool { return s.hasRoom(0, bytes) })
}

// takeNoSlot makes hit i take no slot, if it has a holder: there is no room for the
// slot. If its key is not kept, the hit is decided as the key's first.
func (g *group) takeNoSlot(i int) {
	if g.hits[i].Holder == "" {
		return
	}
	g.decisions[i].At = 0
	if g.items[i] != nil {
		g.hits[i].Holder = ""
	}
}

// charge writes a hit into the state of its key. If there is no room for a state that
// grows by spans, two of them are joined so that it need not grow.
func (s *Store) charge(e *item, h *bucket.Hit, clock int64, d *bucket.Decision) {
	before := e.state.Bytes()
	s.makeRoomForSpan(&e.state)
	*d = h.Limit.Charge(&e.state, clock, h.Demand(0), *d)
	s.recount(e, before)
}

// makeRoomForSpan joins two spans of a state that would grow by another one if there is
// no room for that.
func (s *Store) makeRoomForSpan(state *bucket.State) {
	if n := len(state.Spans); n >= leastSpans && n == cap(state.Spans) && s.bytes.Load()+state.Bytes() > s.maxBytes {
		state.JoinNewest()
	}
}

// recount counts the bytes by which a state grew or shrank; it had before bytes.
func (s *Store) recount(e *item, before int64) {
	if grown := e.state.Bytes() - before; grown != 0 {
		e.bytes += grown
		s.bytes.Add(grown)
	}
}

// insert makes an item for hit i, which has none and will be charged, or finds the one
// that another holder of the group got. It may evict for that, which marks the hit's
// decision as degraded. If there is no room, it returns nil, and the decision is
// degraded or denied.
func (s *Store) insert(g *group, i int, clock int64) *item {
	d := &g.decisions[i]
	sh := g.shard(s, i)
	if g.hits[i].Holder != "" {
		if e := sh.index[string(g.hits[i].Key)]; e != nil {
			g.items[i] = e
			return e
		}
	}
	sh.sweep(s, 2, clock)
	size := bytesOf(&g.hits[i])
	ok := s.reserve(size)
	if !ok && sh.sweep(s, 64, clock) > 0 {
		ok = s.reserve(size)
	}
	if !ok {
		switch s.whenFull {
		case Allow:
			g.degrade(d)
			return nil
		case Deny:
			g.deny(d)
			return nil
		case Evict:
			g.degrade(d)
			if !s.evict(sh, func() bool { return s.reserve(size) }) {
				return nil
			}
		}
	}
	e := newItem(&g.hits[i])
	sh.add(e)
	g.items[i] = e
	return e
}

// evict forgets keys of a shard until there is room. It reports false if eight keys
// are not enough.
func (s *Store) evict(sh *shard, isRoom func() bool) bool {
	const few = 8
	for range few {
		victim := sh.soonest()
		if victim == nil {
			return false
		}
		s.evicted.Add(1)
		victim.isLost = true
		sh.remove(s, victim)
		if isRoom() {
			return true
		}
	}
	return false
}

func (g *group) degrade(d *bucket.Decision) {
	g.degraded++
	d.Degraded = true
}

func (g *group) deny(d *bucket.Decision) {
	g.degrade(d)
	d.RetryAfter = fullRetry
}

// hasRoom reports whether there is room for this many more keys and bytes.
func (s *Store) hasRoom(keys, bytes int64) bool {
	return s.keys.Load()+keys <= s.maxKeys && s.bytes.Load()+bytes <= s.maxBytes
}

// reserve counts one more key of this many bytes, and reports whether there was room.
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
