package redisstore

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// denials remembers groups of hits that Redis denied, and denies them again
// without asking for as long as Redis would: until the first of their denied
// hits would be allowed, and no longer than the memory lasts, so that refunds,
// give-backs and new numbers elsewhere are soon felt. Those that go through
// this store are felt at once.
//
// Only what stays a denial whatever others take is remembered: not a group
// with a refund, nor one with a charge that a denial does not stop, nor one
// with quotas. A limit without a say, of a hit Aside, denies nothing, but its
// own word on that hit is repeated too, and no longer than it holds. What
// others take meanwhile from a limit that has something left for them, though
// not enough for this group, is not seen in what remains.
type denials struct {
	lasts  time.Duration
	now    func() time.Time
	seed   maphash.Seed
	shards [denialShards]denialShard

	// returns counts what was returned to keys, by a hash of the key; a group
	// is forgotten when something was returned to one of its keys since it was
	// asked about. Keys that share a count only make it forget more.
	returns [returnCounts]atomic.Uint64
}

const (
	denialShards = 16 // both are powers of two
	returnCounts = 1 << 12
	// denialsPerShard bounds the memory: some 30,000 denials of about 300 bytes.
	denialsPerShard = 2048
)

// denialShard holds denials by the hash of the key that denied.
type denialShard struct {
	mu    sync.Mutex
	byKey map[uint64]*denial
	// n is how many there are, for those who need not lock if there are none.
	n atomic.Int32
}

func (sh *denialShard) put(hash uint64, k *denial) {
	sh.byKey[hash] = k
	sh.n.Store(int32(len(sh.byKey)))
}

func (sh *denialShard) remove(hash uint64) {
	delete(sh.byKey, hash)
	sh.n.Store(int32(len(sh.byKey)))
}

// denial is a group that was denied.
type denial struct {
	hits      []bucket.Hit
	decisions []bucket.Decision
	by        int       // the hit that is denied for the longest time
	returns   uint64    // to its keys, when it was asked about
	received  time.Time // when the denial came
	until     time.Time // when it ends at the latest
}

// question is what denials was asked about and does not know.
type question struct {
	asked   time.Time
	returns uint64
}

func newDenials(lasts time.Duration, now func() time.Time) *denials {
	d := &denials{lasts: lasts, now: now, seed: maphash.MakeSeed()}
	for i := range d.shards {
		d.shards[i].byKey = make(map[uint64]*denial)
	}
	return d
}

// known reports whether the hits are known to be denied, and fills in the
// decisions then. Otherwise Redis is asked, and learn is told what it says to
// the question.
func (d *denials) known(now time.Time, hits []bucket.Hit, decisions []bucket.Decision) (question, bool) {
	q := question{asked: now}
	var last *denial // by another of the hits each time
	for i := range hits {
		hash := d.hash(hits[i].Key)
		q.returns += d.returnsOf(hash).Load()
		k := d.find(&hits[i], hash, q.asked)
		if k != nil && (last == nil || k.received.After(last.received)) && equalHits(k.hits, hits) {
			last = k
		}
	}
	if last == nil || last.returns != q.returns {
		return q, false
	}
	last.tell(q.asked, decisions)
	return q, true
}

// find returns the denial by a hit's limit and key that has not ended.
func (d *denials) find(h *bucket.Hit, hash uint64, now time.Time) *denial {
	shard := &d.shards[hash%denialShards]
	if shard.n.Load() == 0 {
		return nil
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[hash]
	if k == nil {
		return nil
	}
	if by := &k.hits[k.by]; by.Limit != h.Limit && bytes.Equal(by.Key, h.Key) {
		// Under other numbers the key's state may end sooner.
		shard.remove(hash)
		return nil
	}
	if !now.Before(k.until) {
		shard.remove(hash)
		return nil
	}
	if now.Before(k.received) {
		return nil // it came while this was on its way here, or the clock was set back
	}
	return k
}

// learn is told what Redis decided about the hits of a question.
func (d *denials) learn(q question, hits []bucket.Hit, decisions []bucket.Decision) {
	if bucket.GroupAllowed(hits, decisions) {
		return
	}
	by, lasts := -1, d.lasts
	for i := range decisions {
		if decisions[i].Degraded || hits[i].Cost < 0 || hits[i].Limit.ChargedAnyway(hits[i].Cost) {
			return
		}
		switch retry := decisions[i].RetryAfter; {
		case hits[i].Role > bucket.Enforced:
			return // the first of several quotas to end ends the denial
		case retry == 0:
			continue
		case retry != bucket.Never:
			lasts = min(lasts, retry)
		}
		if hits[i].Role == bucket.Aside {
			continue
		}
		if by < 0 || decisions[i].RetryAfter == bucket.Never || decisions[i].RetryAfter > decisions[by].RetryAfter {
			by = i
		}
	}
	// Redis decided after it was asked, so until then it still denies.
	k := &denial{by: by, returns: q.returns, received: d.now(), until: q.asked.Add(lasts)}
	k.remember(hits, decisions)
	hash := d.hash(hits[by].Key)
	shard := &d.shards[hash%denialShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if len(shard.byKey) >= denialsPerShard {
		shard.makeRoom(k.received)
	}
	shard.put(hash, k)
}

// makeRoom removes a few that have ended, or one that has not.
func (sh *denialShard) makeRoom(now time.Time) {
	const enough = 16
	looked, removed := 0, 0
	for hash, k := range sh.byKey {
		looked++
		if !now.Before(k.until) || looked == enough && removed == 0 {
			sh.remove(hash)
			removed++
		}
		if looked == enough {
			return
		}
	}
}

// returned says that something was returned to the keys of these hits, or may
// have been. There may be no memory.
func (d *denials) returned(hits []bucket.Hit) {
	if d == nil {
		return
	}
	for i := range hits {
		d.returnsOf(d.hash(hits[i].Key)).Add(1)
	}
}

func (d *denials) hash(key []byte) uint64 { return maphash.Bytes(d.seed, key) }

func (d *denials) returnsOf(hash uint64) *atomic.Uint64 {
	return &d.returns[hash/denialShards%returnCounts]
}

func (k *denial) remember(hits []bucket.Hit, decisions []bucket.Decision) {
	var text []byte
	for _, h := range hits {
		start := len(text)
		text = append(text, h.Key...)
		k.hits = append(k.hits, bucket.Hit{Limit: h.Limit, Key: text[start:len(text):len(text)], Cost: h.Cost, Role: h.Role})
	}
	k.decisions = append(k.decisions, decisions...)
}

// tell writes what the group gets now.
func (k *denial) tell(now time.Time, decisions []bucket.Decision) {
	// What a caller is told to wait must be enough, so the time that the denial
	// was on its way does not count as passed.
	passed := now.Sub(k.received).Truncate(time.Microsecond)
	for i, d := range k.decisions {
		if d.RetryAfter > 0 {
			d.RetryAfter -= passed
		}
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Wait = max(0, d.Wait-passed)
		d.At = 0 // nothing was taken that could be given back
		decisions[i] = d
	}
}
