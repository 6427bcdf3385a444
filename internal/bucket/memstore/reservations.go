package memstore

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// reservation is the bill of an ID beside the state of a key. It is in the shard of that
// key, whose lock guards it.
type reservation struct {
	key   string // see bucket.AppendBill
	bill  bucket.Bill
	of    *item  // that was charged last
	by    *usage // of its owner
	bytes int64  // what it counts for in Store.bytes
	at    int32  // index in reservations.items
}

// reservations are those of a shard.
type reservations struct {
	index map[string]*reservation
	items []*reservation // those of index, in no order
	hand  int            // the index in items at which the sweep goes on
}

// Reservations take at most this share of the keys and bytes of a store, so that callers
// who make up IDs cannot push out states: an admitted take makes one of them, which may
// last for longer than the limit's period.
const reservedShare = 4

// usage is what reservations take of a store.
type usage struct{ keys, bytes atomic.Int64 }

// add adds to a usage, and returns what it is then.
func (u *usage) add(keys, bytes int64) (allKeys, allBytes int64) {
	return u.keys.Add(keys), u.bytes.Add(bytes)
}

// Reserve implements bucket.Store; it fails like Take. Where there is no room for a bill,
// the take is charged without one.
func (s *Store) Reserve(_ context.Context, r bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.run(hits, decisions, func(g *group, clock int64) {
		rooms := bucket.Rooms(g.hits, maxSkew, func(i int) (*bucket.State, int64) {
			if e := g.items[i]; e != nil {
				return &e.state, clock
			}
			return nil, clock
		})
		s.take(g, clock)
		allowed := bucket.GroupAllowed(g.hits, g.decisions)
		for i, e := range g.items {
			if h := &g.hits[i]; e != nil && h.IsReserved() && bucket.Charged(h, &g.decisions[i], allowed) {
				cost := h.Cost
				if rooms != nil {
					cost = min(cost, rooms[i])
				}
				s.addToBill(g, i, clock, cost, r)
			}
		}
	})
}

// addToBill adds a cost of hit i, which was charged, to the bill of an ID.
func (s *Store) addToBill(g *group, i int, clock, cost int64, r bucket.Reservation) {
	h, e, of := &g.hits[i], g.items[i], &g.shard(s, i).reserved
	g.text = bucket.AppendBill(g.text[:0], h.Key, r.ID)
	found := of.index[string(g.text)]
	if found == nil {
		of.sweep(s, 2, clock)
		if found = s.newReservation(string(g.text), h, r.Owner); found == nil {
			s.unreserved.Add(1)
			return
		}
		of.add(found)
	}
	found.chargedTo(e)
	found.bill.Add(h.Limit, clock, g.decisions[i].At, cost, r.Lasts)
}

// newReservation returns an empty reservation, or nil if there is no room. An owner may take
// as much as then is free: one of them at most half, two a third each, and a further one
// always finds some.
func (s *Store) newReservation(key string, hit *bucket.Hit, owner string) *reservation {
	// An item that is gone stays in memory as long as a bill names it.
	gone := int64(unsafe.Sizeof(item{})) + roundUp(len(hit.Key))
	const pointers = 72
	const portions = int64(bucket.MaxPortions * unsafe.Sizeof(bucket.Portion{}))
	r := &reservation{key: key, bytes: int64(unsafe.Sizeof(reservation{})) + portions + roundUp(len(key)) + pointers + gone}
	by, ok := s.reservedBy.Load(owner)
	if !ok {
		by, _ = s.reservedBy.LoadOrStore(owner, new(usage)) // as many as there are callers with names
	}
	r.by = by.(*usage)
	keys, bytes := s.reserved.add(1, r.bytes)
	ownKeys, ownBytes := r.by.add(1, r.bytes)
	if owner == "" { // that is everyone
		ownKeys, ownBytes = 0, 0
	}
	if keys+ownKeys <= max(2, s.maxKeys/reservedShare) && bytes+ownBytes <= s.maxBytes/reservedShare && s.reserve(r.bytes) {
		return r
	}
	r.free(s)
	return nil
}

// free no longer counts a reservation in what all of them take.
func (r *reservation) free(s *Store) {
	s.reserved.add(-1, -r.bytes)
	r.by.add(-1, -r.bytes)
}

// chargedTo notes which item is charged. If the one before was lost, nothing of what was
// charged to that is in any state.
func (r *reservation) chargedTo(e *item) {
	if r.of != nil && r.of.isLost {
		r.bill.Void()
	}
	r.of = e
}

// Settle implements bucket.Store; it fails like Take. If there is no room for the state
// that a hit would be charged to, the hit's settlement is Degraded and does nothing.
func (s *Store) Settle(_ context.Context, id string, hits []bucket.Hit, settled []bucket.Settled) error {
	if len(hits) != len(settled) {
		return errLength
	}
	if s.reserved.keys.Load() == 0 {
		clear(settled)
		for i, clock := 0, s.clock(); i < len(settled); i++ {
			settled[i].At = clock
		}
		return nil
	}
	g := s.lock(hits)
	clock := s.clock()
	bills := make([]*reservation, len(g.hits))
	for i := range g.hits {
		h := &g.hits[i]
		g.text = bucket.AppendBill(g.text[:0], h.Key, id)
		if r := g.shard(s, i).reserved.index[string(g.text)]; r != nil && r.bill.IsKnown(clock) {
			bills[i] = r
			if e := g.items[i]; e != nil {
				h.Limit.Mend(&e.state, clock, maxSkew)
			}
		}
	}
	done := make([]bucket.Settled, len(g.hits))
	seq := s.next()
	for i, r := range bills {
		if done[i].At = clock; r != nil {
			done[i] = s.settle(g, i, clock, r)
		}
		done[i].Seq = seq
	}
	s.unlock(g)
	for i, j := range g.of {
		settled[i] = done[j]
	}
	s.release(g)
	return nil
}

// settle settles hit i, whose bill is known.
func (s *Store) settle(g *group, i int, clock int64, r *reservation) bucket.Settled {
	h, state := &g.hits[i], &bucket.State{}
	adds := h.Cost > r.bill.Total() && h.Limit.Requests > 0
	e := g.items[i]
	if e == nil && adds {
		if e = s.insert(g, i, clock); e == nil {
			s.degraded.Add(1)
			return bucket.Settled{IsKnown: true, Takes: r.bill.Takes, At: clock, Degraded: true}
		}
	}
	r.chargedTo(e)
	if e != nil {
		state = &e.state
	}
	before := state.Bytes()
	if adds {
		s.makeRoomForSpan(state)
	}
	done := r.bill.Settle(h.Limit, state, clock, h.Cost)
	if e != nil {
		s.recount(e, before)
	}
	if done.Takes == 0 {
		g.shard(s, i).reserved.remove(s, r)
	}
	return done
}

// Bill returns what the takes of an ID have charged to the hit's state, and the clock; the
// zero Bill if nothing is known of the ID.
func (s *Store) Bill(_ context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, _ error) {
	sh := &s.shards[s.shardOf(maphash.Bytes(s.seed, h.Key))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	clock = s.clock()
	if r := sh.reserved.index[string(bucket.AppendBill(nil, h.Key, id))]; r != nil && r.bill.IsKnown(clock) {
		b = r.bill
		b.Portions = slices.Clone(b.Portions)
	}
	return b, clock, nil
}

func (rs *reservations) add(r *reservation) {
	if rs.index == nil {
		rs.index = make(map[string]*reservation)
	}
	r.at = int32(len(rs.items))
	rs.items = append(rs.items, r)
	rs.index[r.key] = r
}

// remove forgets a reservation and no longer counts it. The last one takes its index.
func (rs *reservations) remove(s *Store, r *reservation) {
	last := len(rs.items) - 1
	moved := rs.items[last]
	moved.at = r.at
	rs.items[r.at] = moved
	rs.items[last] = nil
	rs.items = rs.items[:last]
	delete(rs.index, r.key)
	if last == 0 { // neither a map nor a slice shrinks by itself
		rs.index, rs.items = nil, nil
	}
	r.free(s)
	s.keys.Add(-1)
	s.bytes.Add(-r.bytes)
}

// sweep looks at the next n reservations and removes those that have ended.
func (rs *reservations) sweep(s *Store, n int, clock int64) {
	for range min(n, len(rs.items)) {
		if rs.hand >= len(rs.items) {
			rs.hand = 0
		}
		r := rs.items[rs.hand]
		if r.bill.IsKnown(clock) {
			rs.hand++
			continue
		}
		rs.remove(s, r)
	}
}
